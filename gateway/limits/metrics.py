"""Metrics of the limits; any value but zero in `loragate_limits_redis_unavailable` deserves an alert."""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from loragate.gateway.instruments.tenant_counter import TenantCounter
from loragate.gateway.limits.subject import Kind


class LimitMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._redis_unavailable = Gauge(
            "loragate_limits_redis_unavailable",
            "Gateway processes that cannot reach Redis and enforce their own share of the limits.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._decided_locally = Counter(
            "loragate_limits_local_decisions",
            "Requests that a process decided on alone because Redis was slow or unavailable.",
            registry=registry,
        )
        self._rejected = Counter(
            "loragate_limits_rejected_requests",
            "Requests rejected because of a limit, by the kind of the limit.",
            ("kind",),
            registry=registry,
        )
        self._by_tenant = TenantCounter(
            "rejected_requests", "Requests rejected because of a limit, by the kind of the limit.", registry, "kind"
        )
        for kind in ("requests", "tokens", "concurrency", "day", "month", "size"):
            self._rejected.labels(kind)  # an alert needs a series that starts at zero

    def redis_unavailable(self, unavailable: bool) -> None:
        """Record that the circuit breaker opened (True) or closed (False)."""
        self._redis_unavailable.set(int(unavailable))

    def decided_locally(self) -> None:
        """Count a request that the local share decided on."""
        self._decided_locally.inc()

    def rejected(self, tenant_id: str, kind: Kind | Literal["size"]) -> None:
        """Count a request over a limit; `kind` is "size" for one that is too large for an empty bucket."""
        self._rejected.labels(kind).inc()
        self._by_tenant.inc(tenant_id, kind)
