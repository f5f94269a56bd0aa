"""Metrics of imports."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class ImportMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._running = Gauge(
            "loragate_gateway_imports_running",
            "Imports that are queued or running.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._ended = Counter(
            "loragate_gateway_imports", "Imports that ended, by outcome.", ("outcome",), registry=registry
        )
        self._bytes = Counter("loragate_gateway_imported_bytes", "Bytes fetched by imports.", registry=registry)
        for outcome in ("ready", "failed", "stopped"):
            self._ended.labels(outcome)

    def began(self) -> None:
        """Record the start of an import."""
        self._running.inc()

    def fetched(self, size: int) -> None:
        """Count fetched bytes."""
        self._bytes.inc(size)

    def ended(self, outcome: str) -> None:
        """Record the end of an import: `ready`, `failed`, or `stopped` by its owner or with the server."""
        self._running.dec()
        self._ended.labels(outcome).inc()
