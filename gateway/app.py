"""The application: what is opened at the start, which routes there are, what wraps them."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from loragate.adapter_store.store import Store
from loragate.engine.client import EngineClient
from loragate.gateway.adapter_source import StoreAdapterSource
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.config import GatewayConfig
from loragate.gateway.engine_link import EngineLink
from loragate.gateway.generation.cache_salt import CacheSalts
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.exception_handlers import add_exception_handlers
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.middleware import RequestMiddleware
from loragate.gateway.routes import adapters, admin_keys, admin_tenants, aliases, chat, completions, health, models
from loragate.gateway.services import Services


def create_app(config: GatewayConfig, lifecycle: Lifecycle | None = None) -> FastAPI:
    """The gateway's application. Whoever runs it may hold its lifecycle, to drain it."""
    lifecycle = lifecycle or Lifecycle()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _open_services(config, lifecycle) as services:
            app.state.services = services
            yield

    # FastAPI's documentation pages load scripts from elsewhere, and its redirects trust the Host header.
    app = FastAPI(
        title="loragate",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in (health, chat, completions, models, aliases, adapters, admin_tenants, admin_keys):
        app.include_router(module.router)
    add_exception_handlers(app)
    app.add_middleware(RequestMiddleware, lifecycle=lifecycle)
    return app


@asynccontextmanager
async def _open_services(config: GatewayConfig, lifecycle: Lifecycle) -> AsyncIterator[Services]:
    store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    try:
        client = EngineClient(
            config.engine_target, StoreAdapterSource(store), heartbeat_timeout=config.heartbeat_timeout
        )
        link = EngineLink(client, store, config.tool_parser)
        await link.start()
        try:
            yield Services(
                config,
                lifecycle,
                store,
                Authenticator(store, config.auth_cache_seconds),
                link,
                GenerationService(client, CacheSalts(config.secret_key)),
                started_at=int(time.time()),
            )
        finally:
            await link.close()
    finally:
        await store.close()
