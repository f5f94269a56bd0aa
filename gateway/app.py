"""The application: its services, its routes and its middleware."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from loragate.adapter_store.notices.notices import Notices
from loragate.adapter_store.notices.wakeups import GATEWAY, Wakeups
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.service_quality import Reason
from loragate.engine.fleet.connector import connector
from loragate.engine.fleet.load import FleetLoad
from loragate.gateway.auth.authenticator import Authenticator, Operators
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.auth.notices import open_notices
from loragate.gateway.background.deferred_publications import run_deferred_publication_loop
from loragate.gateway.background.responses import run_response_queue_loop, run_response_retention_loop
from loragate.gateway.background.retention import run_retention_loop
from loragate.gateway.background.sweep import run_sweep_loop
from loragate.gateway.background.training import run_training_retention_loop
from loragate.gateway.batches.runner import BatchRunner
from loragate.gateway.calls.admission import Admission
from loragate.gateway.calls.rejections import Rejections
from loragate.gateway.calls.shedding import Shedding
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.peers import TrustedProxies
from loragate.gateway.engine.adapter_source import StoreAdapterSource
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.engine.reconciler import Reconciler
from loragate.gateway.engine.replica_sets import run_replica_sets_loop
from loragate.gateway.engine.residency import Residency
from loragate.gateway.engine.stats_reader import EngineStatsReader
from loragate.gateway.generation.cache_salt import CacheSalts
from loragate.gateway.generation.prepare import RequestPreparer
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.generation.tokenize import PromptTokenizer
from loragate.gateway.generation.tokenizing_threads import TokenizingThreads
from loragate.gateway.grpc.server import serving
from loragate.gateway.http.bodies import BodyBudget
from loragate.gateway.http.exception_handlers import add_exception_handlers
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.middleware import RequestMiddleware
from loragate.gateway.imports.resume import run_resume_loop
from loragate.gateway.imports.runner import ImportRunner
from loragate.gateway.limits.changes import ChangeLimiter
from loragate.gateway.limits.limiter import open_limiter
from loragate.gateway.metering.ledger import Ledger, Prices
from loragate.gateway.metering.retention import run_purge_loop
from loragate.gateway.metrics import GatewayMetrics
from loragate.gateway.resilience.database_check import DatabaseCheck
from loragate.gateway.resilience.fair_places import FairPlaces
from loragate.gateway.resilience.redis import RedisLink
from loragate.gateway.resilience.tenant_threads import TenantThreads
from loragate.gateway.resilience.timeouts import cancel_and_wait
from loragate.gateway.resilience.ttl_cache import TTLCache
from loragate.gateway.responses.runner import ResponseRunner
from loragate.gateway.routes import docs, health, metrics
from loragate.gateway.routes.admin import adapters as admin_adapters
from loragate.gateway.routes.admin import admin_keys
from loragate.gateway.routes.admin import audit as admin_audit
from loragate.gateway.routes.admin import batches as admin_batches
from loragate.gateway.routes.admin import engines as admin_engines
from loragate.gateway.routes.admin import jobs as admin_jobs
from loragate.gateway.routes.admin import keys as tenants_keys
from loragate.gateway.routes.admin import tenants as admin_tenants
from loragate.gateway.routes.admin import training_runs as admin_training_runs
from loragate.gateway.routes.inference import (
    chat,
    classification,
    completions,
    embeddings,
    messages,
    models,
    responses,
    stored_responses,
    tokens,
)
from loragate.gateway.routes.resources import (
    adapters,
    aliases,
    batches,
    conversations,
    files,
    fine_tuning,
    imports,
    releases,
    response_store,
    uploads,
    usage,
    whoami,
)
from loragate.gateway.routes.resources import training_runs as watched_runs
from loragate.gateway.routes.training import client as training_client
from loragate.gateway.routes.training import commands as training_commands
from loragate.gateway.routes.training import runs as training_runs
from loragate.gateway.routes.training import sampling as training_sampling
from loragate.gateway.routes.training import sessions as training_sessions
from loragate.gateway.routes.training import tokenizer as hub_tokenizer
from loragate.gateway.services import Services
from loragate.gateway.training.downloads import DownloadLinks
from loragate.gateway.training.futures import Futures
from loragate.gateway.training.samples import Samples
from loragate.gateway.uploads.concurrency import UploadLimiter
from loragate.gateway.uploads.spool_space import SpoolSpace

if TYPE_CHECKING:
    from loragate.gateway.tracing_setup import Tracing

_SCRAPE_SECONDS = 1.0  # for which scrapes without a key get the same page
_MAX_FOLLOWERS = 1024  # calls that follow a job's events; each reads the database once a second
_MAX_FOLLOWERS_OF_TENANT = 32
_MAX_EXPORTS = 64  # merged exports of all tenants; each engine runs one
_EXPOSED_HEADERS = (
    "x-request-id",
    "request-id",
    "x-loragate-adapter",
    "openai-processing-ms",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "idempotent-replayed",
    *(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
)
_CONNECT_SECONDS = 1.0  # so that a worker that replaces a dead one does not respond 503 while it connects


def create_app(config: GatewayConfig, lifecycle: Lifecycle | None = None) -> FastAPI:
    """Create the gateway's application. Pass a lifecycle to be able to drain it."""
    lifecycle = lifecycle or Lifecycle()
    process_metrics = GatewayMetrics()
    tracing = _tracing(config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            nullcontext() if tracing is None else tracing.sending(),
            open_notices(config) as notices,
            _open_services(config, lifecycle, process_metrics, tracing, notices) as services,
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
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `tracing` and `metrics` are our own
        routes=_routes(),
    )
    add_exception_handlers(app)
    proxies = TrustedProxies(config.trusted_proxies)
    app.add_middleware(RequestMiddleware, lifecycle=lifecycle, metrics=process_metrics.http, proxies=proxies)
    _allow_origins(app, config.cors_origins)
    if tracing is not None:
        tracing.watch(app)
    return app


@cache
def _routes() -> list[BaseRoute]:
    """Return all routes, the most frequent requests' first, because they are tried in this order. What FastAPI derives
    from them at the first request is the same for all applications of a process."""
    inference = (chat, completions, messages, responses, stored_responses, embeddings, classification, tokens)
    stored = (conversations, response_store)
    tenants = (models, aliases, adapters, releases, imports, files, uploads, batches, fine_tuning, usage, whoami)
    training = (training_sampling, training_commands, training_sessions, training_runs, training_client, hub_tokenizer)
    operators = (admin_tenants, tenants_keys, admin_keys, admin_adapters, admin_audit, admin_engines, admin_jobs)
    watched = (watched_runs, admin_training_runs, admin_batches)
    router = APIRouter()
    for module in (*inference, health, metrics, *tenants, *stored, *operators, *watched, *training, docs):
        router.include_router(module.router)
    return router.routes


def _allow_origins(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins call the API from a browser, with the keys that they send themselves: credentials
    that a browser would add, such as cookies and client certificates, are never allowed."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
            allow_credentials=False,
        )


@asynccontextmanager
async def _open_services(
    config: GatewayConfig,
    lifecycle: Lifecycle,
    metrics: GatewayMetrics,
    tracing: "Tracing | None",
    notices: Notices,
) -> AsyncIterator[Services]:
    """Open in an order in which each service is closed before those that it uses."""
    async with AsyncExitStack() as stack:
        retention = timedelta(hours=config.deleted_retention_hours)
        store = await Store.open(
            config.database_url,
            config.blob_url,
            config.secret_key,
            notices,
            previous_secret_keys=config.previous_secret_keys,
            retention=retention,
            min_free=config.min_free_bytes,
            signatures=config.signatures,
        )
        stack.push_async_callback(store.close)
        store.on_damage = metrics.quarantines.inc
        prices = Prices(config.prices, config.batch_price_factor)
        ledger = Ledger(store, config.usage_dir, prices, metrics.usage)
        ledger.start()
        stack.push_async_callback(ledger.close)
        redis = None
        if config.redis_url is not None:
            redis = RedisLink(config.redis_url, metrics.limits.redis_unavailable, prefix=config.redis_prefix)
            stack.push_async_callback(redis.close)
        limiter = open_limiter(redis, store, config.sharers, metrics.limits)
        limiter.start()
        ledger.settle_lease = limiter.settle_interrupted
        stack.push_async_callback(limiter.close)

        def engine_changed(ready: bool) -> None:
            metrics.http.ready(ready)
            reconciler.due()

        parsers = config.tool_parser, config.reasoning_parser
        connect = connector(
            StoreAdapterSource(store),
            secret=config.engine_secret,
            previous_secrets=config.previous_engine_secrets,
            tls=config.engine_tls,
            heartbeat_timeout=config.heartbeat_timeout,
        )
        link = EngineLink(config.engine_addresses, connect, store, parsers, engine_changed, config.engine_tls)
        reconciler = Reconciler(store, link.fleet)
        stack.push_async_callback(link.close)
        await link.start()
        await link.connected(_CONNECT_SECONDS)
        key_use = KeyUse(store, config.key_use_seconds)
        rejections = Rejections(store)
        _run_jobs(
            stack,
            {
                "loop-lag": metrics.http.sample_loop_lag(),
                "key-use": key_use.run_write_loop(),
                "rejections": rejections.run_write_loop(),
                "sweep": run_sweep_loop(store),
                "deferred-publications": run_deferred_publication_loop(store, link, config),
                "usage-retention": run_purge_loop(store, config.usage_retention_days),
                "retention": run_retention_loop(store, config.audit_retention_days, config.job_event_retention_days),
                "reconciler": reconciler.run_reconcile_loop(),
                "replica-sets": run_replica_sets_loop(store, link.fleet),
            },
        )
        imports = ImportRunner(config.imports, metrics.imports)
        stack.push_async_callback(imports.close)
        tokenizing = TokenizingThreads(
            config.max_tokenizing_bytes, lambda tenant_id: rejections.record(tenant_id, Reason.OVERLOAD)
        )
        stack.callback(tokenizing.close)
        resolver = Resolver(store, config.snapshot_seconds)
        engine = link.fleet if tracing is None else tracing.engine(link.fleet)
        generation = GenerationService(engine, CacheSalts(config.secret_key))
        tokenizer = PromptTokenizer(tokenizing, special_tokens=config.special_tokens_in_prompts)

        def preparer(*, batches: bool) -> RequestPreparer:
            return RequestPreparer(
                link=link,
                resolver=resolver,
                tokenizer=tokenizer,
                limiter=limiter,
                on_rejection=rejections.record,
                config=config,
                batches=batches,
            )

        batch_runner = BatchRunner(preparer(batches=True), generation, prices, config.max_batch_concurrency)
        response_runner = ResponseRunner(prices, config.responses.max_background)
        admission = Admission(
            shedding=Shedding(FleetLoad(link.fleet).read, config.max_queue_seconds, metrics.shedding),
            rejections=rejections,
            limiter=limiter,
            ledger=ledger,
            generation=generation,
            lifecycle=lifecycle,
            link=link,
        )
        wakeups = Wakeups(config.wakeup_dir, GATEWAY)
        wakeups.open()
        stack.callback(wakeups.close)
        futures = Futures(store, wakeups)
        samples = Samples(store, admission, link, config, wakeups, futures)
        stack.push_async_callback(samples.close)
        services = Services(
            config=config,
            lifecycle=lifecycle,
            store=store,
            authenticator=Authenticator(
                store=store,
                lifetime=config.snapshot_seconds,
                use=key_use,
                operators=_operators(config),
                on_failure=metrics.authentication.failed,
            ),
            resolver=resolver,
            link=link,
            preparer=preparer(batches=False),
            admission=admission,
            usage_metrics=metrics.usage.requests,
            http_metrics=metrics.http,
            engine_stats=EngineStatsReader(link.fleet),
            residency=Residency(link.fleet),
            imports=imports,
            batches=batch_runner,
            responses=response_runner,
            wakeups=wakeups,
            futures=futures,
            samples=samples,
            downloads=DownloadLinks(config.secret_key),
            upload_limiter=UploadLimiter(),
            body_budget=BodyBudget(config.max_buffered_body_bytes),
            body_threads=_threads(stack, "large-bodies"),
            file_threads=_threads(stack, "files"),
            public_metrics=TTLCache(_SCRAPE_SECONDS, 1),
            event_followers=FairPlaces(_MAX_FOLLOWERS, _MAX_FOLLOWERS_OF_TENANT),
            exports=FairPlaces(_MAX_EXPORTS, 1),
            database_check=DatabaseCheck(store),
            change_limiter=ChangeLimiter(config.max_changes_per_minute),
            spool_space=SpoolSpace(config.upload_dir, config.min_free_bytes, config.upload_disk_share),
            started_at=int(time.time()),
        )
        _run_jobs(
            stack,
            {
                "imports": run_resume_loop(services),
                "batches": batch_runner.run_loop(services),
                "responses": response_runner.run_loop(services),
                "response-retention": run_response_retention_loop(store, metrics.responses),
                "response-queue": run_response_queue_loop(store, metrics.responses),
                "futures": futures.run_loop(),
                "samples": samples.run_renewal_loop(),
                "training-retention": run_training_retention_loop(store),
            },
        )
        yield services


def _threads(stack: AsyncExitStack, name: str) -> TenantThreads:
    threads = TenantThreads(name)
    stack.callback(threads.close)
    return threads


def _run_jobs(stack: AsyncExitStack, jobs: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run these in the background, by name, until the stack is closed."""
    stack.push_async_callback(cancel_and_wait, *(asyncio.create_task(job, name=name) for name, job in jobs.items()))


def _tracing(config: GatewayConfig) -> "Tracing | None":
    """Set up tracing if it is configured. OpenTelemetry is an extra, imported only then."""
    if config.tracing is None:
        return None
    from loragate.gateway.tracing_setup import Tracing

    return Tracing(config.tracing)


def _operators(config: GatewayConfig) -> Operators | None:
    """Return how operators sign in by OpenID Connect, if configured. It is imported only then: it loads slowly."""
    if config.oidc is None:
        return None
    from loragate.gateway.auth.oidc import OidcOperators

    return OidcOperators(config.oidc)
