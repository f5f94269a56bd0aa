"""How the versions behind each alias do, for whoever watches a canary. Only the operator is told them."""

from prometheus_client import CollectorRegistry, Counter

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.instruments.tenant_counter import OTHER, PREFIX

MOST_ARMS = 1024
_LABELS = ("tenant", "adapter", "alias")

Arm = tuple[str, str, str]


class ArmMetrics:
    """The first 1,024 pairs of version and alias of a process are counted one by one, all others together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, words: str, *more: str) -> Counter:
            return Counter(f"{PREFIX}arm_{name}", words, (*_LABELS, *more), registry=registry)

        self._requests = counter("requests", "Requests that named an alias, by its version and outcome.", "outcome")
        self._prompt = counter("prompt_tokens", "Tokens of their prompts.")
        self._completion = counter("completion_tokens", "Tokens that clients were told.")
        self._answered = counter("answered_requests", "Those that got a token.")
        self._first_token = counter("first_token_seconds", "Their time from admission to the first token, summed.")
        self._arms: set[Arm] = set()

    def ended(self, record: UsageRecord) -> None:
        """One request has."""
        if record.adapter_alias is None:
            return
        arm = self._arm(record)
        self._requests.labels(*arm, record.outcome.value).inc()
        if record.first_token_ms is not None:
            self._prompt.labels(*arm).inc(record.prompt_tokens)
            self._completion.labels(*arm).inc(record.completion_tokens)
            self._answered.labels(*arm).inc()
            self._first_token.labels(*arm).inc(record.first_token_ms / 1000)

    def _arm(self, record: UsageRecord) -> Arm:
        arm = (record.tenant_id, f"{record.adapter}:{record.adapter_version}", record.adapter_alias or "")
        if arm not in self._arms and len(self._arms) >= MOST_ARMS:
            return OTHER, OTHER, OTHER
        self._arms.add(arm)
        return arm
