"""What each adapter has served, for as many of them as memory is set aside for."""

from dataclasses import dataclass

from loragate.engine.sequence.request import AdapterKey

MAX_ADAPTERS = 1024
"""Adapters counted one by one. The one that nobody asked for the longest makes room; it starts from zero again."""


@dataclass(slots=True)
class AdapterCounts:
    """Totals since the start, or since the adapter was last forgotten."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    started: int = 0  # completions that reached the batch
    queue_seconds: float = 0.0  # theirs
    first_tokens: int = 0  # completions with a token
    time_to_first_token_seconds: float = 0.0  # theirs
    loads: int = 0


class AdapterMetrics:
    """Written by the step thread; `read` from any. The base model alone counts as the adapter None."""

    def __init__(self) -> None:
        self._counts: dict[AdapterKey | None, AdapterCounts] = {}  # least recently asked for first

    def asked_for(self, key: AdapterKey | None) -> AdapterCounts:
        """A request names the adapter: from now on others are forgotten before it."""
        counts = self._counts.pop(key, None) or AdapterCounts()
        self._counts[key] = counts
        if len(self._counts) > MAX_ADAPTERS:
            del self._counts[next(iter(self._counts))]
        return counts

    def loaded(self, key: AdapterKey) -> None:
        """It came to the device; a pinned one does without a request."""
        (self._counts.get(key) or self.asked_for(key)).loads += 1

    def read(self) -> dict[AdapterKey | None, AdapterCounts]:
        """The counts themselves, which go on changing."""
        return self._counts.copy()
