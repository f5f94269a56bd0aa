"""Security headers of the panel's pages: nothing from other hosts, and no inline scripts except its own."""

import re
import secrets

from starlette.types import ASGIApp as App
from starlette.types import Message, Receive, Scope, Send

_SCRIPT = re.compile(rb"<script(?=[\s>])")
# Vue compiles templates in the browser, which it calls eval; NiceGUI styles elements inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


class PageHeaders:
    """Adds the headers, and gives each script of a page the nonce that its policy allows.

    Users' texts are escaped in pages, so none of the scripts can be theirs.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Marked(send).send)


class _Marked:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None  # of a page, which is sent once its body is complete
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish(self._start)

    async def _begin(self, message: Message) -> None:
        policy = _POLICY.format(nonce=self._nonce).encode()
        headers = [*message["headers"], *_HEADERS, (b"content-security-policy", policy)]
        started = {**message, "headers": headers}
        if any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers):
            self._start = started
        else:
            await self._send(started)

    async def _finish(self, start: Message) -> None:
        body = _SCRIPT.sub(b'<script nonce="%s"' % self._nonce.encode(), self._body)
        headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
        start["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
