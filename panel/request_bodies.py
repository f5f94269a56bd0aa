"""Bodies of requests that the panel itself reads, within limits of size and time.

Uploads are exceptions: the API limits them, and only signed-in callers reach it.
"""

import asyncio

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 20  # NiceGUI's own maximum of a page's message
MAX_SIGNED_OUT_BYTES = 64 << 10
_MAX_SIGNED_OUT = 64  # bodies at once
_WITHOUT_BODY = ("GET", "HEAD")
_UPLOADS = ("/transfer/", "/_nicegui/client/")


class RequestBodies:
    """Reads bodies completely, each within `read_seconds`, before the application is called.

    Of callers that are not signed in, it reads a few bodies at once; a further one ends the oldest.
    """

    def __init__(self, app: ASGIApp, read_seconds: float) -> None:
        self._app = app
        self._read_seconds = read_seconds
        self._signed_out: dict[asyncio.Timeout, None] = {}  # by age

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        signed_in = scope["state"]["session"] is not None
        if signed_in and scope["path"].startswith(_UPLOADS):
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._read_seconds) as deadline:
                body = await (_body(receive, MAX_BODY_BYTES) if signed_in else self._read_signed_out(receive, deadline))
        except TimeoutError:
            await _rejection("The body arrived too slowly.", 408)(scope, receive, send)
        except ValueError:
            await _rejection("The body is too large.", 413)(scope, receive, send)
        else:
            await self._app(scope, _replayed(body, receive), send)

    async def _read_signed_out(self, receive: Receive, deadline: asyncio.Timeout) -> bytes:
        if len(self._signed_out) >= _MAX_SIGNED_OUT:
            oldest = next(iter(self._signed_out))
            del self._signed_out[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
        self._signed_out[deadline] = None
        try:
            return await _body(receive, MAX_SIGNED_OUT_BYTES)
        finally:
            self._signed_out.pop(deadline, None)


async def _body(receive: Receive, limit: int) -> bytes:
    """Return the body; of one whose client has left, what arrived. Raise ValueError above the limit."""
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limit:
            raise ValueError("too large")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _rejection(message: str, status: int) -> Response:
    return JSONResponse({"error": {"message": message}}, status, {"connection": "close"})
