"""Metrics of the usage ledger; any failure deserves an alert."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from loragate.gateway.metering.request_metrics import RequestMetrics


class UsageMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help: str) -> Counter:
            return Counter(f"loragate_usage_{name}", help, registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(f"loragate_usage_{name}", help, multiprocess_mode="livesum", registry=registry)

        self.requests = RequestMetrics(registry)
        self.settled = counter("settled_records", "Usage records written to the database.")
        self.settle_failures = counter("settle_failures", "Failed writes of usage records to the database.")
        self.spool_failures = counter("spool_failures", "Failed writes of usage records to disk.")
        self.lost = counter("lost_records", "Usage records lost because neither disk nor memory had room.")
        self.damaged = counter("damaged_records", "Unreadable lines of spooled usage; their files are kept.")
        self.rejected = counter("rejected_records", "Usage records that the database rejects; their files are kept.")
        self.crashed = counter(
            "recovered_requests", "Requests cut off by a worker's crash, billed for the tokens delivered until then."
        )
        self.waiting = gauge("waiting_records", "Usage records that are only in memory.")
        self.segments = gauge("spooled_segments", "Files of usage records that are not in the database yet.")
