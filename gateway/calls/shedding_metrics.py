"""How much is turned away."""

from prometheus_client import CollectorRegistry, Counter

from loragate.gateway.observability.tenant_counter import TenantCounter


class SheddingMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shed = Counter(
            "loragate_gateway_shed_requests",
            "Requests turned away because the engine had too much to do.",
            registry=registry,
        )
        self._shed_of_tenant = TenantCounter(
            "shed_requests", "Requests turned away because the engine had too much to do, by tenant.", registry
        )

    def shed(self, tenant_id: str) -> None:
        """A request was turned away."""
        self._shed.inc()
        self._shed_of_tenant.inc(tenant_id)
