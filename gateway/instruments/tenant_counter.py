"""Counters by tenant whose memory is bounded for any number of tenants. Only the operator can read them."""

from prometheus_client import CollectorRegistry, Counter

TENANT_PREFIX = "loragate_tenant_"
MAX_TENANTS = 1024
OTHER = "other"


class TenantCounter:
    """Counts the first 1,024 tenants of a process individually, and all others together."""

    def __init__(self, name: str, help: str, registry: CollectorRegistry, *labels: str) -> None:
        """`labels` are those beside the tenant's; they take few values, none of which a client chooses."""
        self._counter = Counter(TENANT_PREFIX + name, help, ("tenant", *labels), registry=registry)
        self._series: dict[tuple[str, ...], Counter] = {}
        self._tenants: set[str] = set()

    def inc(self, tenant_id: str, *labels: str, by: int = 1) -> None:
        """Add `by`, with the values of the labels in their order."""
        series = self._series.get((tenant_id, *labels))
        if series is None:
            series = self._new_series(tenant_id, labels)
        series.inc(by)

    def _new_series(self, tenant_id: str, labels: tuple[str, ...]) -> Counter:
        if tenant_id not in self._tenants and len(self._tenants) >= MAX_TENANTS:
            return self._counter.labels(OTHER, *labels)
        self._tenants.add(tenant_id)
        series = self._series[tenant_id, *labels] = self._counter.labels(tenant_id, *labels)
        return series
