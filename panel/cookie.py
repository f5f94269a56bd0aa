"""The cookie that names a session."""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie


class SessionCookie:
    """Signed with a key of this process, as no session outlives it. `instance` is in the name, because cookies do not
    know ports."""

    def __init__(self, instance: str) -> None:
        self.name = f"loragate-panel-{hashlib.sha256(instance.encode()).hexdigest()[:8]}"
        self._key = secrets.token_bytes(32)

    def header(self, session_id: str, *, secure: bool) -> str:
        """`Set-Cookie` of a sign-in; gone when the browser closes."""
        return self._header(f"{session_id}.{self._mark(session_id)}", secure)

    def removal(self, *, secure: bool) -> str:
        """`Set-Cookie` of a sign-out."""
        return self._header("", secure) + "; Max-Age=0"

    def sent(self, cookies: str) -> str | None:
        """What a request's `Cookie` header has under this name, whatever it is worth."""
        try:
            morsel = SimpleCookie(cookies).get(self.name)
        except CookieError:
            return None
        return None if morsel is None else morsel.value

    def session_id(self, value: str) -> str | None:
        """None unless this process made it."""
        session_id, _, mark = value.rpartition(".")
        if not value.isascii() or not hmac.compare_digest(mark, self._mark(session_id)):
            return None
        return session_id

    def _mark(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), "sha256").hexdigest()

    def _header(self, value: str, secure: bool) -> str:
        return f"{self.name}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
