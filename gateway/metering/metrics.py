"""How the usage ledger is doing; anything but zeros in the failures deserves an alert."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from loragate.gateway.metering.request_metrics import RequestMetrics


class UsageMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, words: str) -> Counter:
            return Counter(f"loragate_usage_{name}", words, registry=registry)

        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"loragate_usage_{name}", words, multiprocess_mode="livesum", registry=registry)

        self.requests = RequestMetrics(registry)
        self.settled = counter("settled_records", "Usage records that the database took.")
        self.settle_failures = counter("settle_failures", "Times that the database took no usage records.")
        self.spool_failures = counter("spool_failures", "Times that the disk took no usage records.")
        self.lost = counter("lost_records", "Usage records that neither disk nor memory had room for.")
        self.damaged = counter("damaged_records", "Lines of spooled usage that cannot be read; their files are kept.")
        self.rejected = counter("rejected_records", "Usage records that the database will not take; files are kept.")
        self.crashed = counter("recovered_requests", "Requests cut by the death of a worker, billed as told by then.")
        self.waiting = gauge("waiting_records", "Usage records in memory only.")
        self.segments = gauge("spooled_segments", "Files of usage that the database does not have yet.")
