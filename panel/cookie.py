"""The session cookie."""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

_HOST_ONLY = "__Host-"  # browsers accept such a cookie only over TLS, from the host itself, for all of its paths


class SessionCookie:
    """Signs session ids with a key of this process, which no session outlives.

    The cookie's name contains a hash of `instance`, because browsers share cookies between the ports of a host. Over
    TLS it has the prefix `__Host-`, so that another host of the domain cannot set it. With `always_secure`, a cookie
    without the prefix is not read.
    """

    def __init__(self, instance: str, *, always_secure: bool = False) -> None:
        self._name = f"loragate-panel-{hashlib.sha256(instance.encode()).hexdigest()[:8]}"
        self._accepted = (_HOST_ONLY + self._name,) if always_secure else (_HOST_ONLY + self._name, self._name)
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
            parsed = SimpleCookie(cookies)
        except CookieError:
            return None
        return next((parsed[name].value for name in self._accepted if name in parsed), None)

    def session_id(self, value: str) -> str | None:
        """Return the session id of a value that this process has signed, else None."""
        session_id, _, mark = value.rpartition(".")
        if not value.isascii() or not hmac.compare_digest(mark, self._mark(session_id)):
            return None
        return session_id

    def _mark(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), "sha256").hexdigest()

    def _header(self, value: str, secure: bool) -> str:
        name = _HOST_ONLY + self._name if secure else self._name
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
