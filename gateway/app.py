"""The application: what is opened at the start, which routes there are, what wraps them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from fastapi import FastAPI

from loragate.adapter_store.notices.notices import Notices
from loragate.adapter_store.store import Store
from loragate.engine.client.client import EngineClient
from loragate.gateway.auth.authenticator import Authenticator, Operators
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.auth.notices import opened_notices
from loragate.gateway.background.deferred_publications import keep_finishing
from loragate.gateway.background.sweep import keep_sweeping
from loragate.gateway.calls.rejections import TurnedAway
from loragate.gateway.calls.shedding import Shedding
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.adapter_source import StoreAdapterSource
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.engine.reconciler import Reconciler
from loragate.gateway.engine.residency import Residency
from loragate.gateway.engine.stats_reader import EngineReading
from loragate.gateway.generation.cache_salt import CacheSalts
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.grpc.server import serving
from loragate.gateway.http.exception_handlers import add_exception_handlers
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.middleware import RequestMiddleware
from loragate.gateway.imports.resume import keep_resuming
from loragate.gateway.imports.runner import ImportRunner
from loragate.gateway.instruments.loop_lag import run_lag_sampling
from loragate.gateway.limits.limiter import open_limiter
from loragate.gateway.metering.ledger import Ledger
from loragate.gateway.metering.prices import Prices
from loragate.gateway.metering.retention import keep_purging
from loragate.gateway.metrics import GatewayMetrics
from loragate.gateway.resilience.redis import RedisLink
from loragate.gateway.resilience.timeouts import cancel_and_wait
from loragate.gateway.routes import docs, health, metrics
from loragate.gateway.routes.admin import adapters as admin_adapters
from loragate.gateway.routes.admin import audit as admin_audit
from loragate.gateway.routes.admin import engines as admin_engines
from loragate.gateway.routes.admin import jobs as admin_jobs
from loragate.gateway.routes.admin import keys as admin_keys
from loragate.gateway.routes.admin import tenants as admin_tenants
from loragate.gateway.routes.inference import chat, completions, embeddings, models, responses
from loragate.gateway.routes.resources import (
    adapters,
    aliases,
    files,
    fine_tuning,
    imports,
    releases,
    uploads,
    usage,
    whoami,
)
from loragate.gateway.services import Services
from loragate.gateway.uploads.concurrency import UploadSlots

if TYPE_CHECKING:
    from loragate.gateway.tracing_setup import Tracing

_ENGINE_PATIENCE = 1.0  # a worker that takes the place of a dead one answers nobody 503 while it connects


def create_app(config: GatewayConfig, lifecycle: Lifecycle | None = None) -> FastAPI:
    """The gateway's application. Whoever runs it may hold its lifecycle, to drain it."""
    lifecycle = lifecycle or Lifecycle()
    counted = GatewayMetrics()
    tracing = _tracing(config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            nullcontext() if tracing is None else tracing.sending(),
            opened_notices(config) as notices,
            _open_services(config, lifecycle, counted, tracing, notices) as services,
            serving(services, [] if tracing is None else [tracing.interceptor]) as grpc_port,
        ):
            app.state.services, app.state.grpc_port = services, grpc_port
            yield

    # FastAPI's documentation page loads scripts from elsewhere, and its redirects trust the Host header.
    app = FastAPI(
        title="loragate",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    # In the order in which they are tried: what is asked most comes first.
    inference = (chat, completions, responses, embeddings)
    tenants = (models, aliases, adapters, releases, imports, files, uploads, fine_tuning, usage, whoami)
    operators = (admin_tenants, admin_keys, admin_adapters, admin_audit, admin_engines, admin_jobs)
    for module in (*inference, health, metrics, *tenants, *operators, docs):
        app.include_router(module.router)
    add_exception_handlers(app)
    app.add_middleware(RequestMiddleware, lifecycle=lifecycle, metrics=counted.http)
    if tracing is not None:
        tracing.watch(app)
    return app


@asynccontextmanager
async def _open_services(
    config: GatewayConfig,
    lifecycle: Lifecycle,
    counted: GatewayMetrics,
    tracing: "Tracing | None",
    notices: Notices,
) -> AsyncIterator[Services]:
    kept = timedelta(hours=config.deleted_retention_hours)
    store = await Store.open(config.database_url, config.blob_url, config.secret_key, notices, kept=kept)
    store.heard_of_damage = counted.quarantines.inc
    try:
        ledger = Ledger(store, config.usage_dir, Prices(config.prices), counted.usage)
        ledger.start()
        client = EngineClient(
            config.engine_target, StoreAdapterSource(store), heartbeat_timeout=config.heartbeat_timeout
        )
        reconciler = Reconciler(store, client)

        def engine_changed(ready: bool) -> None:
            counted.http.ready(ready)
            reconciler.due()

        link = EngineLink(client, store, config.tool_parser, engine_changed)
        await link.start()
        await link.connected(_ENGINE_PATIENCE)
        lag = asyncio.create_task(run_lag_sampling(counted.http.lagged), name="loop-lag")
        key_use = KeyUse(store, config.key_use_seconds)
        writing = asyncio.create_task(key_use.run_write_loop(), name="key-use")
        turned_away = TurnedAway(store)
        counting = asyncio.create_task(turned_away.keep_writing(), name="turned-away")
        sweeping = asyncio.create_task(keep_sweeping(store), name="sweep")
        finishing = asyncio.create_task(keep_finishing(store, link, config), name="deferred-publications")
        purge = asyncio.create_task(keep_purging(store, config.usage_retention_days), name="usage-retention")
        reconciling = asyncio.create_task(reconciler.keep_reconciling(), name="reconciler")
        redis = None if config.redis_url is None else RedisLink(config.redis_url, counted.limits.redis_unavailable)
        limiter = open_limiter(redis, store, config.sharers, counted.limits)
        limiter.start()
        imports = ImportRunner(config.imports, counted.imports)
        services = Services(
            config,
            lifecycle,
            store,
            Authenticator(store, config.snapshot_seconds, key_use, _operators(config)),
            Resolver(store, config.snapshot_seconds),
            link,
            GenerationService(client if tracing is None else tracing.engine(client), CacheSalts(config.secret_key)),
            Shedding(lambda: client.load, config.max_queue_seconds, counted.shedding),
            turned_away,
            limiter,
            ledger,
            counted.http,
            EngineReading(link),
            Residency(client),
            imports,
            UploadSlots(),
            started_at=int(time.time()),
        )
        resuming = asyncio.create_task(keep_resuming(services), name="imports")
        try:
            yield services
        finally:
            await cancel_and_wait(resuming)
            await imports.close()
            await cancel_and_wait(lag, writing, counting, sweeping, finishing, purge, reconciling)
            await link.close()
            await limiter.close()
            if redis is not None:
                await redis.close()
            await ledger.close()
    finally:
        await store.close()


def _tracing(config: GatewayConfig) -> "Tracing | None":
    """OpenTelemetry is an extra, imported where it is wanted only."""
    if config.tracing is None:
        return None
    from loragate.gateway.tracing_setup import Tracing

    return Tracing(config.tracing)


def _operators(config: GatewayConfig) -> Operators | None:
    """Imported where it is wanted only: it takes longer to load than the rest of auth."""
    if config.oidc is None:
        return None
    from loragate.gateway.auth.oidc import OidcOperators

    return OidcOperators(config.oidc)
