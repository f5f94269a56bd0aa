"""The meter of one running request."""

import time
from collections.abc import Callable
from dataclasses import replace

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.gateway.metering.live_counters import LiveCounters


class Meter:
    """Counts the tokens delivered to the client so far, and makes the request's one record at the end."""

    def __init__(
        self, opened: UsageRecord, counters: LiveCounters | None, ended: Callable[[UsageRecord, int | None], None]
    ) -> None:
        self._record = opened
        self._counters = counters
        self._ended = ended
        self._started = time.monotonic()
        self._slot = None if counters is None else counters.take(opened)
        self._counts = (0, 0, 0)
        self._ttft_ms: int | None = None

    def update(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int, *, durable: bool = True) -> None:
        """Set the totals by now, which are less than before if tokens could not be delivered after all.

        Totals that are not `durable` do not count if this process dies: the client has not received any of them yet.
        """
        elapsed = self._elapsed_ms()
        self._counts = counts = (prompt_tokens, completion_tokens, cached_tokens)
        if not any(counts):
            self._ttft_ms = None
        elif self._ttft_ms is None:
            self._ttft_ms = elapsed
        if durable and self._counters is not None and self._slot is not None:
            self._counters.update(self._slot, *counts, self._ttft_ms, elapsed)

    def close(self, outcome: Outcome) -> None:
        """Record that the request has ended. Return at once."""
        prompt, completion, cached = self._counts
        record = replace(
            self._record,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(cached, prompt),
            ttft_ms=self._ttft_ms,
            duration_ms=self._elapsed_ms(),
            outcome=outcome,
        )
        self._ended(record, self._slot)

    def _elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._started))
