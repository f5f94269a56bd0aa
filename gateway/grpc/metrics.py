"""Metrics of gRPC calls."""

from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from loragate.gateway.http.metrics import SECONDS


class GrpcMetrics:
    """One per application, in the registry of the HTTP metrics. No label contains a client's text."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "loragate_grpc_calls", "Completed gRPC calls, by status.", ("method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "loragate_grpc_call_duration_seconds",
            "Time from a gRPC call's start to its status.",
            ("method",),
            buckets=SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "loragate_grpc_calls_in_flight",
            "gRPC calls without a status yet.",
            multiprocess_mode="livesum",
            registry=registry,
        )

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a call while the block lasts."""
        return self._in_flight.track_inprogress()

    def completed(self, method: str, status: str, seconds: float) -> None:
        """Record that a call received its status, or that its client left."""
        self._calls.labels(method, status).inc()
        self._seconds.labels(method).observe(seconds)
