"""Counters of each adapter's traffic, for a bounded number of adapters."""

from dataclasses import dataclass

from loragate.engine.sequence.request import AdapterKey

MAX_ADAPTERS = 1024
"""Adapters counted individually. The one requested longest ago is evicted, and starts from zero when it returns."""


@dataclass(slots=True)
class AdapterCounts:
    """Totals since the start, or since the adapter was last evicted from the counters."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    started: int = 0  # completions that entered the batch
    queue_seconds: float = 0.0  # of these completions
    first_tokens: int = 0  # completions with a token
    time_to_first_token_seconds: float = 0.0  # of these completions
    loads: int = 0


class AdapterMetrics:
    """Counters written by the step thread; `read` is thread-safe. The base model alone is the adapter None."""

    def __init__(self) -> None:
        self._counts: dict[AdapterKey | None, AdapterCounts] = {}  # least recently requested first

    def asked_for(self, key: AdapterKey | None) -> AdapterCounts:
        """Return the adapter's counts, and mark it as the most recently requested."""
        counts = self._counts.pop(key, None) or AdapterCounts()
        self._counts[key] = counts
        if len(self._counts) > MAX_ADAPTERS:
            del self._counts[next(iter(self._counts))]
        return counts

    def loaded(self, key: AdapterKey) -> None:
        """Count a load to the device; a pinned adapter is loaded without a request."""
        (self._counts.get(key) or self.asked_for(key)).loads += 1

    def read(self) -> dict[AdapterKey | None, AdapterCounts]:
        """Return the counts themselves, which continue to change."""
        return self._counts.copy()
