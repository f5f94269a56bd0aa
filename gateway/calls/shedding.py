"""Load shedding: rejects new requests while the engine is overloaded, before any work is done for them.

The criterion is the time that a new request of the tenant would wait: the tenant's queue plus one request, at the share
of the engine that its weight gives it among all active tenants. A flood therefore sheds only the tenant that causes it,
and when all tenants wait, those with the lowest weights are shed first.
"""

import collections
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.errors import OVERLOADED, ApiError, Unavailable, rounded_wait
from loragate.gateway.instruments.tenant_counter import TenantCounter
from loragate.v1 import engine_pb2 as pb


class SheddingMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shed = Counter(
            "loragate_gateway_shed_requests",
            "Requests that the gateway shed because the engine was overloaded.",
            registry=registry,
        )
        self._rejected = Counter(
            "loragate_gateway_engine_rejections",
            "Admitted requests that the engine rejected because its queue was too long, by status.",
            ("status",),
            registry=registry,
        )
        for status in (429, 503):
            self._rejected.labels(status)
        self._shed_of_tenant = TenantCounter(
            "shed_requests", "Requests shed because the engine was overloaded, by tenant.", registry
        )

    def shed(self, tenant_id: str) -> None:
        """Count a request that was rejected before it reached the engine."""
        self._shed.inc()
        self._shed_of_tenant.inc(tenant_id)

    def engine_rejected(self, tenant_id: str, status: int) -> None:
        """Count an admitted request that the engine rejected."""
        self._rejected.labels(status).inc()
        self._shed_of_tenant.inc(tenant_id)


_RESUME = 0.75  # of the limit: a tenant whose requests are shed is admitted again below
_MIN_RETRY_SECONDS = 1.0


class Shedding:
    """One per process. `load` returns the engine's last load report, None while its queue is empty."""

    def __init__(self, load: Callable[[], pb.Load | None], max_seconds: float, metrics: SheddingMetrics) -> None:
        self._load = load
        self._max_seconds = max_seconds
        self._metrics = metrics
        self._known: pb.Load | None = None
        self._queues: Mapping[str, pb.TenantQueue] = {}
        # Requests by tenant since the last load report of the engine.
        self._sent: collections.Counter[str] = collections.Counter()
        self._shed_tenants: set[str] = set()

    def check(self, caller: TenantPrincipal) -> None:
        """Raise Unavailable if the caller would wait too long."""
        load = self._load()
        if load is not self._known:
            self._update(load)
        if load is None:
            return
        tenant_id = caller.tenant_id
        wait = self._wait(load, tenant_id, caller.weight)
        resume = _RESUME * self._max_seconds
        if wait <= (resume if tenant_id in self._shed_tenants else self._max_seconds):
            self._shed_tenants.discard(tenant_id)
            self._sent[tenant_id] += 1
            return
        self._shed_tenants.add(tenant_id)
        self._metrics.shed(tenant_id)
        raise _overloaded(wait - resume)

    def count_engine_rejection(self, caller: TenantPrincipal, error: ApiError) -> None:
        """Count an admitted request that the engine rejected: more arrived at once than its load report foresaw."""
        self._metrics.engine_rejected(caller.tenant_id, error.status)

    def _update(self, load: pb.Load | None) -> None:
        self._known = load
        self._sent.clear()
        self._queues = {queue.tenant_id: queue for queue in load.tenants} if load is not None else {}
        if load is None:
            self._shed_tenants.clear()

    def _wait(self, load: pb.Load, tenant_id: str, weight: float) -> float:
        """Return the seconds that a new request would wait."""
        queue = self._queues.get(tenant_id)
        own, known_weight = (queue.seconds, queue.weight) if queue is not None else (0.0, 0.0)
        seconds = own + (1 + self._sent[tenant_id]) * load.request_seconds
        return seconds * (max(0.0, load.active_weight - known_weight) + weight) / weight


def _overloaded(retry_after: float) -> Unavailable:
    """Return the error. Its message leaves out how long the request would wait, which others' requests decide."""
    retry_after = rounded_wait(max(_MIN_RETRY_SECONDS, retry_after))
    message = f"The engine is overloaded at the moment. Please try again in {retry_after:.0f} s."
    return Unavailable(message, code=OVERLOADED, retry_after=retry_after)
