"""Access control: everything except the sign-in page and static files needs a session."""

from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loragate.panel.cookie import SessionCookie
from loragate.panel.origins import Origins
from loragate.panel.sessions import Session, Sessions

SIGN_IN = "/sign-in"
_OPEN = (SIGN_IN, "/healthz", "/favicon.ico")
_FILES = ("/static/", "/_nicegui/")
_PER_CLIENT = "/_nicegui/client/"
SOCKET = "/_nicegui_ws/"
_READING = ("GET", "HEAD")
_OTHER_HOST = "The panel does not have this name: its operator can add it to LORAGATE_PANEL__HOSTS."


class Guard:
    """Puts the caller's session, or None, into `scope["state"]["session"]`."""

    def __init__(self, app: ASGIApp, sessions: Sessions, cookie: SessionCookie, origins: Origins) -> None:
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session = self.session(headers.get("cookie", ""))
        scope.setdefault("state", {})["session"] = session
        rejection = self._rejection(scope, headers, session)
        if rejection is not None:
            await rejection(scope, receive, send)
            return
        if session is not None and scope["type"] == "http" and not scope["path"].startswith(SOCKET):
            self._sessions.record_activity(session)
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"x-forwarded-prefix"]
        await self._app(scope, receive, send)

    def session(self, cookies: str) -> Session | None:
        """Return the session of a `Cookie` header, if it is valid."""
        sent = self._cookie.sent(cookies)
        session_id = None if sent is None else self._cookie.session_id(sent)
        return None if session_id is None else self._sessions.find(session_id)

    def _rejection(self, scope: Scope, headers: Headers, session: Session | None) -> Response | None:
        path: str = scope["path"]
        if not self._origins.names(headers):
            return JSONResponse({"error": {"message": _OTHER_HOST}}, 421)
        if scope["type"] == "websocket" or path.startswith(SOCKET):
            return None  # see sockets.py: only a rejected handshake makes the browser reload the page
        if scope["method"] not in _READING and not self._origins.own(scope["scheme"], headers):
            return JSONResponse({"error": {"message": "This request did not come from the panel."}}, 403)
        if session is not None or path in _OPEN or (path.startswith(_FILES) and not path.startswith(_PER_CLIENT)):
            return None
        if scope["method"] not in _READING:
            return JSONResponse({"error": {"message": "You are signed out. Sign in again."}}, 401)
        query = scope.get("query_string", b"").decode("latin-1")
        asked = {"next": f"{path}?{query}" if query else path} if path != "/" else {}
        over = {"ended": "over"} if self._cookie.sent(headers.get("cookie", "")) else {}
        return RedirectResponse(f"{SIGN_IN}?{urlencode(asked | over)}".rstrip("?"), 303)
