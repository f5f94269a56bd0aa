"""What becomes of imports."""

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
        """One more."""
        self._running.inc()

    def fetched(self, size: int) -> None:
        """So many bytes came."""
        self._bytes.inc(size)

    def ended(self, outcome: str) -> None:
        """`ready`, `failed`, or `stopped`: by its owner, or with the server."""
        self._running.dec()
        self._ended.labels(outcome).inc()
