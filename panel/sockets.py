"""Browsers' connections to pages: only a session's own browser speaks to the session's pages.

NiceGUI knows a page by an id alone. Its handlers of socket.io's events are called only where the cookie that the socket
came with belongs to the session that the page was made for; else the browser is told to load the page again, and comes
to the sign-in page.
"""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

from nicegui import core
from socketio.exceptions import ConnectionRefusedError

from loragate.panel.guard import Guard
from loragate.panel.sessions import Session, Sessions

_GUARDED = ("event", "javascript_response", "ack", "log", "handshake")
_RELOAD = "Implicit handshake failed"  # NiceGUI's own words, which its script knows


def guard_sockets(guard: Guard, sessions: Sessions, origins: list[str] | None) -> None:
    """Once, before the first connection. Without `origins` those count whose host is the one that was asked."""
    core.sio.eio.cors_allowed_origins = origins
    handlers = core.sio.handlers["/"]
    connect = handlers["connect"]

    async def admitted(sid: str, environ: dict[str, Any], auth: Any = None) -> None:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        if _page_of(guard, environ, query.get("client_id", [""])[0]) is None:
            raise ConnectionRefusedError(_RELOAD)
        await connect(sid, environ, auth)

    handlers["connect"] = admitted
    for name in _GUARDED:
        handlers[name] = _guarded(handlers[name], guard, sessions, is_act=name == "event")


def _guarded(
    handler: Callable[..., Any], guard: Guard, sessions: Sessions, *, is_act: bool
) -> Callable[..., Awaitable[Any]]:
    async def guarded(sid: str, message: dict[str, Any]) -> Any:
        session = _page_of(guard, core.sio.get_environ(sid) or {}, str(message.get("client_id")))
        if session is None:
            return False
        if is_act:
            sessions.act(session)
        result = handler(sid, message)
        return await result if isawaitable(result) else result

    return guarded


def _page_of(guard: Guard, environ: dict[str, Any], client_id: str) -> Session | None:
    """The session, where the page is one of its own."""
    session = guard.session(environ.get("HTTP_COOKIE", ""))
    return session if session is not None and client_id in session.pages else None
