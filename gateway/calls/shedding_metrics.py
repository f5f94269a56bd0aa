"""How much is turned away."""

from prometheus_client import CollectorRegistry, Counter


class SheddingMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shed = Counter(
            "loragate_gateway_shed_requests",
            "Requests turned away because the engine had too much to do.",
            registry=registry,
        )
