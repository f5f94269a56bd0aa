"""The services that the routes of one process share."""

from dataclasses import dataclass
from typing import Protocol

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.notices.wakeups import Wakeups
from loragate.adapter_store.store import Store
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.calls.admission import Admission
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.engine.residency import Residency
from loragate.gateway.engine.stats_reader import EngineStatsReader
from loragate.gateway.generation.prepare import RequestPreparer
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.http.bodies import BodyBudget
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.http.metrics import HttpMetrics
from loragate.gateway.limits.changes import ChangeLimiter
from loragate.gateway.metering.request_metrics import RequestMetrics
from loragate.gateway.resilience.database_check import DatabaseCheck
from loragate.gateway.resilience.fair_places import FairPlaces
from loragate.gateway.resilience.tenant_threads import TenantThreads
from loragate.gateway.resilience.ttl_cache import TTLCache
from loragate.gateway.training.downloads import DownloadLinks
from loragate.gateway.training.futures import Futures
from loragate.gateway.training.samples import Samples
from loragate.gateway.uploads.concurrency import UploadLimiter
from loragate.gateway.uploads.spool_space import SpoolSpace


class Imports(Protocol):
    """The imports that this process works on."""

    def check(self, source: str, tenant_id: str) -> None:
        """Raise InvalidRequest for a source that is malformed, or that the operator does not allow this tenant."""
        ...

    def start(self, use: "Services", caller: TenantPrincipal, by: Actor, wanted: Import, token: str | None) -> None:
        """Begin to fetch. Returns at once. `token` is the tenant's own, for its hub."""
        ...

    @property
    def has_capacity(self) -> bool:
        """Whether another import would be started at once."""
        ...

    @property
    def running(self) -> int:
        """The number of imports that wait or are worked on here."""
        ...


class Batches(Protocol):
    """The batches that this process runs."""

    def wake(self) -> None:
        """Look for batches now: one was created, or cancelled."""
        ...


class BackgroundResponses(Protocol):
    """The responses that this process runs in the background."""

    def wake(self) -> None:
        """Look for responses now: one was created, cancelled or deleted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Created when the application starts, closed when it stops."""

    config: GatewayConfig
    lifecycle: Lifecycle
    store: Store
    authenticator: Authenticator
    resolver: Resolver
    link: EngineLink
    preparer: RequestPreparer
    admission: Admission
    http_metrics: HttpMetrics
    usage_metrics: RequestMetrics
    engine_stats: EngineStatsReader
    residency: Residency
    imports: Imports
    batches: Batches
    responses: BackgroundResponses
    wakeups: Wakeups  # of gateways and trainers on this machine
    futures: Futures
    samples: Samples
    downloads: DownloadLinks
    upload_limiter: UploadLimiter
    body_budget: BodyBudget
    body_threads: TenantThreads  # parse large bodies
    file_threads: TenantThreads  # read what was uploaded: check lines, compute digests
    public_metrics: TTLCache[str, bytes]  # the page for scrapes without a key
    event_followers: FairPlaces  # of tenants, for streams that last as long as a job
    exports: FairPlaces  # of tenants, for merged exports
    database_check: DatabaseCheck
    change_limiter: ChangeLimiter
    spool_space: SpoolSpace
    started_at: int  # Unix time
