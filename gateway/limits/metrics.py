"""How limits are held; anything but zero in `loragate_limits_redis_away` deserves an alert."""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from loragate.gateway.instruments.tenant_counter import TenantCounter
from loragate.gateway.limits.subject import Kind


class LimitMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._away = Gauge(
            "loragate_limits_redis_away",
            "Gateway processes that have given up on Redis for now and hold their share of the limits alone.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._shared = Counter(
            "loragate_limits_local_decisions",
            "Requests that one process decided on alone, because Redis was slow or gone.",
            registry=registry,
        )
        self._refused = Counter(
            "loragate_limits_refused_requests", "Requests over a limit, by its kind.", ("kind",), registry=registry
        )
        self._of_tenants = TenantCounter("refused_requests", "Requests over a limit, by its kind.", registry, "kind")
        for kind in ("requests", "tokens", "concurrency", "day", "month", "size"):
            self._refused.labels(kind)  # a series that begins at zero can be alerted on

    def redis_away(self, away: bool) -> None:
        """The breaker opened, or closed again."""
        self._away.set(int(away))

    def shared(self) -> None:
        """A request was decided on by the local share."""
        self._shared.inc()

    def refused(self, tenant_id: str, kind: Kind | Literal["size"]) -> None:
        """A request was over a limit; one too large for any bucket is of the kind "size"."""
        self._refused.labels(kind).inc()
        self._of_tenants.inc(tenant_id, kind)
