"""Security headers of the panel's pages: nothing from other hosts, no inline scripts except its own, and TLS only."""

import re
import secrets
from collections.abc import Callable

from jinja2 import BaseLoader, Environment
from nicegui.client import templates
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp as App
from starlette.types import Message, Receive, Scope, Send

from loragate.panel.origins import Origins

_SCRIPT = re.compile(r"<script(?=[\s>])")
# Vue compiles templates in the browser, which it calls eval; NiceGUI styles elements inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class PageHeaders:
    """Adds the headers, and makes the nonce of each page's policy.

    Over TLS, browsers are asked to use nothing else for `hsts_seconds`; 0 leaves this out.
    """

    def __init__(self, app: App, origins: Origins, hsts_seconds: int) -> None:
        self._app = app
        self._origins = origins
        self._hsts = {"strict-transport-security": f"max-age={hsts_seconds}"} if hsts_seconds else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["csp_nonce"] = nonce
        always = _HEADERS | (self._hsts if self._origins.secure(scope["scheme"]) else {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**always, "content-security-policy": _POLICY.format(nonce=nonce)})
            await send(message)

        await self._app(scope, receive, with_headers)


def give_nonces_to_templates() -> None:
    """Make NiceGUI's templates write the nonce into their own script elements, once per process.

    Only the text of a template gets it, never a value that the template shows. A script that a user's text smuggled
    into a page would therefore have no nonce.
    """
    loader = templates.env.loader
    assert loader is not None
    if not isinstance(loader, _WithNonces):
        templates.env.loader = _WithNonces(loader)


class _WithNonces(BaseLoader):
    def __init__(self, loader: BaseLoader) -> None:
        self._loader = loader

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, name, is_current = self._loader.get_source(environment, template)
        return _SCRIPT.sub('<script nonce="{{ request.state.csp_nonce }}"', source), name, is_current
