"""Counters by tenant that no number of tenants can fill the memory with. Only the operator is told them."""

from prometheus_client import CollectorRegistry, Counter

TENANT_PREFIX = "loragate_tenant_"
MOST_TENANTS = 1024
OTHER = "other"


class TenantCounter:
    """The first 1,024 tenants of a process are counted one by one, all others together."""

    def __init__(self, name: str, words: str, registry: CollectorRegistry, *labels: str) -> None:
        """`labels` beside the tenant's; their values are ours, and few."""
        self._counter = Counter(TENANT_PREFIX + name, words, ("tenant", *labels), registry=registry)
        self._series: dict[tuple[str, ...], Counter] = {}
        self._tenants: set[str] = set()

    def inc(self, tenant_id: str, *labels: str, by: int = 1) -> None:
        """`labels` in the order in which they were named."""
        series = self._series.get((tenant_id, *labels))
        if series is None:
            series = self._new_series(tenant_id, labels)
        series.inc(by)

    def _new_series(self, tenant_id: str, labels: tuple[str, ...]) -> Counter:
        if tenant_id not in self._tenants and len(self._tenants) >= MOST_TENANTS:
            return self._counter.labels(OTHER, *labels)
        self._tenants.add(tenant_id)
        series = self._series[tenant_id, *labels] = self._counter.labels(tenant_id, *labels)
        return series
