"""Access control for the web sockets of pages: only the browser of a session can use the session's pages.

NiceGUI identifies a page only by an id. Its handlers of socket.io events are called only if the socket's cookie belongs
to the session that the page was created for. Otherwise the browser has to reload the page, and gets the sign-in page.
"""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

from nicegui import core
from socketio.exceptions import ConnectionRefusedError
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loragate.panel.guard import SOCKET, Guard
from loragate.panel.origins import Origins
from loragate.panel.sessions import Session, Sessions

_MAX_SIGNED_OUT = 64  # requests and sockets at once
_MAX_ENGINE_SOCKETS = 2000  # above this number, only signed-in callers open further ones
_SIGNED_OUT_SECONDS = 10.0  # enough to be rejected, which makes a page reload
_GUARDED = ("event", "javascript_response", "ack", "log", "handshake")
_POLICY_VIOLATION = 1008  # a close code of the WebSocket protocol
_RELOAD = "Implicit handshake failed"  # NiceGUI's own message, which its script recognizes


class SignedOutSockets:
    """Bounds what callers without a session can keep open: few requests and sockets, each for a short time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_socket = scope["type"] in ("http", "websocket") and scope["path"].startswith(SOCKET)
        if not is_socket or scope["state"]["session"] is not None:
            await self._app(scope, receive, send)
        elif self._running >= _MAX_SIGNED_OUT or len(core.sio.eio.sockets) >= _MAX_ENGINE_SOCKETS:
            await _refuse(scope, receive, send)
        else:
            self._running += 1
            try:
                await self._serve_briefly(scope, receive, send)
            finally:
                self._running -= 1

    async def _serve_briefly(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(_SIGNED_OUT_SECONDS):
                await self._app(scope, receive, watched)
        except TimeoutError:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            elif not started:
                await _refuse(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await Response("Sign in first.", 403)(scope, receive, send)


def guard_sockets(guard: Guard, sessions: Sessions, origins: Origins) -> None:
    """Wrap NiceGUI's handlers, once, before the first connection, and accept the panel's own pages only."""

    def is_own(origin: str | None, environ: dict[str, Any]) -> bool:
        # engine.io itself would take a connection over TLS for one without.
        asked = {"origin": origin or "", "host": environ.get("HTTP_HOST", "")}
        return origins.own(environ["asgi.scope"]["scheme"], asked)

    core.sio.eio.cors_allowed_origins = is_own
    handlers = core.sio.handlers["/"]
    connect = handlers["connect"]

    async def guarded_connect(sid: str, environ: dict[str, Any], auth: Any = None) -> None:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        if _session_of_page(guard, environ, query.get("client_id", [""])[0]) is None:
            raise ConnectionRefusedError(_RELOAD)
        await connect(sid, environ, auth)

    handlers["connect"] = guarded_connect
    for name in _GUARDED:
        handlers[name] = _guarded(handlers[name], guard, sessions, is_activity=name == "event")


def _guarded(
    handler: Callable[..., Any], guard: Guard, sessions: Sessions, *, is_activity: bool
) -> Callable[..., Awaitable[Any]]:
    async def guarded(sid: str, message: dict[str, Any]) -> Any:
        session = _session_of_page(guard, core.sio.get_environ(sid) or {}, str(message.get("client_id")))
        if session is None:
            return False
        if is_activity:
            sessions.record_activity(session)
        result = handler(sid, message)
        return await result if isawaitable(result) else result

    return guarded


def _session_of_page(guard: Guard, environ: dict[str, Any], client_id: str) -> Session | None:
    """Return the session, if the page is one of its own."""
    session = guard.session(environ.get("HTTP_COOKIE", ""))
    return session if session is not None and client_id in session.pages else None
