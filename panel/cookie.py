"""The session cookie."""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie


class SessionCookie:
    """Signs session ids with a key of this process, which no session outlives.

    The cookie's name contains a hash of `instance`, because browsers share cookies between the ports of a host.
    """

    def __init__(self, instance: str) -> None:
        self.name = f"loragate-panel-{hashlib.sha256(instance.encode()).hexdigest()[:8]}"
        self._key = secrets.token_bytes(32)

    def header(self, session_id: str, *, secure: bool) -> str:
        """Return the `Set-Cookie` header of a sign-in. The cookie is deleted when the browser closes."""
        return self._header(f"{session_id}.{self._mark(session_id)}", secure)

    def removal(self, *, secure: bool) -> str:
        """Return the `Set-Cookie` header of a sign-out."""
        return self._header("", secure) + "; Max-Age=0"

    def sent(self, cookies: str) -> str | None:
        """Return the unchecked value of this cookie in a request's `Cookie` header."""
        try:
            morsel = SimpleCookie(cookies).get(self.name)
        except CookieError:
            return None
        return None if morsel is None else morsel.value

    def session_id(self, value: str) -> str | None:
        """Return the session id of a value that this process has signed, else None."""
        session_id, _, mark = value.rpartition(".")
        if not value.isascii() or not hmac.compare_digest(mark, self._mark(session_id)):
            return None
        return session_id

    def _mark(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), "sha256").hexdigest()

    def _header(self, value: str, secure: bool) -> str:
        return f"{self.name}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
