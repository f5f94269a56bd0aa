"""The panel's application: middleware, routes and pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI
from nicegui import ui
from starlette.middleware import Middleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from loragate.panel import transfers
from loragate.panel.config import PanelConfig
from loragate.panel.cookie import SessionCookie
from loragate.panel.guard import SIGN_IN, Guard
from loragate.panel.origins import Origins
from loragate.panel.page_headers import PageHeaders, give_nonces_to_templates
from loragate.panel.pages import register
from loragate.panel.request_bodies import RequestBodies
from loragate.panel.sessions import Sessions
from loragate.panel.sign_in import SignIn
from loragate.panel.sockets import SignedOutSockets, guard_sockets

_STATIC = Path(__file__).parent / "static"
_WEIGHTS = ("application/octet-stream", "application/x-tar")  # large, and hardly compressible


def create_app(config: PanelConfig, port: int) -> FastAPI:
    """Create the application. Call this once per process, because NiceGUI's application is global."""
    sessions = Sessions(config)
    origins = Origins(config.public_url, config.hosts, tls=config.tls is not None)
    cookie = SessionCookie(f"{config.gateway_url} {port}", always_secure=origins.always_secure)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        checking = asyncio.create_task(sessions.run_check_loop(), name="sessions")
        try:
            yield
        finally:
            checking.cancel()
            with suppress(asyncio.CancelledError):
                await checking
            await sessions.close()

    middleware = [
        Middleware(GZipMiddleware, exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, *_WEIGHTS)),
        Middleware(PageHeaders, origins=origins, hsts_seconds=config.hsts_seconds),
        Middleware(Guard, sessions=sessions, cookie=cookie, origins=origins),
        Middleware(RequestBodies, read_seconds=config.stall_seconds),
        Middleware(SignedOutSockets),
    ]
    app = FastAPI(
        lifespan=lifespan,
        middleware=middleware,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    sign_in = SignIn(config, sessions, cookie, origins)
    app.add_route("/healthz", _healthz, methods=["GET"])
    app.add_route(SIGN_IN, sign_in.show, methods=["GET"])
    app.add_route(SIGN_IN, sign_in.submit, methods=["POST"])
    app.add_route("/sign-out", sign_in.sign_out, methods=["POST"])
    app.include_router(transfers.router)
    app.mount("/static", StaticFiles(directory=_STATIC))
    register()
    give_nonces_to_templates()
    ui.run_with(
        app,
        title="loragate",
        favicon=_STATIC / "favicon.svg",
        dark=None,
        language="en-US",
        tailwind=False,
        reconnect_timeout=10.0,
        gzip_middleware_factory=None,
        show_welcome_message=False,
    )
    guard_sockets(Guard(app, sessions, cookie, origins), sessions, origins)
    return app


async def _healthz(_: Request) -> JSONResponse:
    """Report that the process is alive."""
    return JSONResponse({"status": "ok"})
