"""Metrics of stored responses. All but the counter are about the whole database, and the same in every gateway."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from loragate.adapter_store.responses.response import StorageUse


class ResponseMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(name, meaning, labels, registry=registry, multiprocess_mode="mostrecent")

        self._stored = gauge("loragate_responses_stored", "Stored responses and conversations, by kind.", "kind")
        self._bytes = gauge("loragate_responses_stored_bytes", "Bytes of what is stored of them, sealed.")
        self._waiting = gauge("loragate_responses_waiting", "Background responses that wait for a gateway.")
        self._oldest = gauge(
            "loragate_responses_oldest_wait_seconds", "Age of the oldest background response that waits for a gateway."
        )
        self._pruned = Counter(
            "loragate_responses_pruned",
            "Expired responses and conversations that this gateway removed, by kind.",
            ("kind",),
            registry=registry,
        )
        for kind in ("response", "conversation"):
            self._stored.labels(kind)
            self._pruned.labels(kind)

    def stored(self, use: StorageUse) -> None:
        """Record what all tenants store."""
        self._stored.labels("response").set(use.responses)
        self._stored.labels("conversation").set(use.conversations)
        self._bytes.set(use.size_bytes)

    def queue(self, waiting: int, oldest_seconds: float) -> None:
        """Record how many background responses wait, and for how long the oldest one has."""
        self._waiting.set(waiting)
        self._oldest.set(oldest_seconds)

    def pruned(self, responses: int, conversations: int) -> None:
        """Count what was removed because it had expired."""
        self._pruned.labels("response").inc(responses)
        self._pruned.labels("conversation").inc(conversations)
