"""Refuses newcomers while the engine has too much to do, before anything is done or set aside for them.

What counts is how long a newcomer of the tenant would wait: its queue and one more request, at the share of the engine
that its weight gives it among all who are active. So a flood turns away the one who sends it, and where everybody
waits, those with the least weight are turned away first.
"""

import collections
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.errors import OVERLOADED, ApiError, Unavailable
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
        self._refused = Counter(
            "loragate_gateway_engine_rejections",
            "Admitted requests that the engine rejected because its queue was too long, by status.",
            ("status",),
            registry=registry,
        )
        for status in (429, 503):
            self._refused.labels(status)
        self._shed_of_tenant = TenantCounter(
            "shed_requests", "Requests shed because the engine was overloaded, by tenant.", registry
        )

    def shed(self, tenant_id: str) -> None:
        """A request was turned away."""
        self._shed.inc()
        self._shed_of_tenant.inc(tenant_id)

    def refused(self, tenant_id: str, status: int) -> None:
        """The engine turned one away that had been let in."""
        self._refused.labels(status).inc()
        self._shed_of_tenant.inc(tenant_id)


_RESUME = 0.75  # of the bound: who is being turned away is let in again below
_RETRY_SECONDS = (1.0, 60.0)


class Shedding:
    """One per process. `load` is what the engine said last, None while nothing waits in it."""

    def __init__(self, load: Callable[[], pb.Load | None], most_seconds: float, metrics: SheddingMetrics) -> None:
        self._load = load
        self._most_seconds = most_seconds
        self._metrics = metrics
        self._known: pb.Load | None = None
        self._queues: Mapping[str, pb.TenantQueue] = {}
        # Requests by tenant since the last load report of the engine.
        self._sent: collections.Counter[str] = collections.Counter()
        self._turned_away: set[str] = set()  # tenants

    def check(self, caller: TenantPrincipal) -> None:
        """Raises Unavailable where the caller would wait for too long."""
        load = self._load()
        if load is not self._known:
            self._take_up(load)
        if load is None:
            return
        tenant_id = caller.tenant_id
        wait = self._wait(load, tenant_id, caller.weight)
        resume = _RESUME * self._most_seconds
        if wait <= (resume if tenant_id in self._turned_away else self._most_seconds):
            self._turned_away.discard(tenant_id)
            self._sent[tenant_id] += 1
            return
        self._turned_away.add(tenant_id)
        self._metrics.shed(tenant_id)
        raise _overloaded(wait, wait - resume)

    def refused(self, caller: TenantPrincipal, error: ApiError) -> None:
        """The engine had too much to do for a request that had been let in: more came at once than it had said."""
        self._metrics.refused(caller.tenant_id, error.status)

    def _take_up(self, load: pb.Load | None) -> None:
        self._known = load
        self._sent.clear()
        self._queues = {queue.tenant_id: queue for queue in load.tenants} if load is not None else {}
        if load is None:
            self._turned_away.clear()

    def _wait(self, load: pb.Load, tenant_id: str, weight: float) -> float:
        """Seconds."""
        queue = self._queues.get(tenant_id)
        own, known_weight = (queue.seconds, queue.weight) if queue is not None else (0.0, 0.0)
        seconds = own + (1 + self._sent[tenant_id]) * load.request_seconds
        return seconds * (max(0.0, load.active_weight - known_weight) + weight) / weight


def _overloaded(wait: float, retry_after: float) -> Unavailable:
    least, most = _RETRY_SECONDS
    retry_after = min(most, max(least, retry_after))
    message = f"The engine has too much to do at the moment: a request would wait for about {wait:.0f} s."
    return Unavailable(f"{message} Please try again in {retry_after:.0f} s.", code=OVERLOADED, retry_after=retry_after)
