"""How much is turned away."""

from prometheus_client import CollectorRegistry, Counter

from loragate.gateway.instruments.tenant_counter import TenantCounter


class SheddingMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shed = Counter(
            "loragate_gateway_shed_requests",
            "Requests turned away because the engine had too much to do.",
            registry=registry,
        )
        self._refused = Counter(
            "loragate_gateway_engine_refusals",
            "Requests let in that the engine refused because too much waited, or they did for too long, by status.",
            ("status",),
            registry=registry,
        )
        for status in (429, 503):
            self._refused.labels(status)
        self._shed_of_tenant = TenantCounter(
            "shed_requests", "Requests turned away because the engine had too much to do, by tenant.", registry
        )

    def shed(self, tenant_id: str) -> None:
        """A request was turned away."""
        self._shed.inc()
        self._shed_of_tenant.inc(tenant_id)

    def refused(self, tenant_id: str, status: int) -> None:
        """The engine turned one away that had been let in."""
        self._refused.labels(status).inc()
        self._shed_of_tenant.inc(tenant_id)
