"""One running request, metered."""

import time
from collections.abc import Callable
from dataclasses import replace

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.gateway.metering.live_counters import OpenCalls


class Meter:
    """Holds what the client was told so far, and makes the one record of it at the end."""

    def __init__(
        self, opened: UsageRecord, open_calls: OpenCalls | None, ended: Callable[[UsageRecord, int | None], None]
    ) -> None:
        self._record = opened
        self._open_calls = open_calls
        self._ended = ended
        self._started = time.monotonic()
        self._slot = None if open_calls is None else open_calls.take(opened)
        self._counts = (0, 0, 0)
        self._first_token_ms: int | None = None

    def told(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int, *, durable: bool = True) -> None:
        """In all, by now. Less than before where what it was to be told did not come after all.

        What is not `durable` does not count if this process dies: the client has not seen any of it yet.
        """
        elapsed = self._elapsed_ms()
        self._counts = counts = (prompt_tokens, completion_tokens, cached_tokens)
        if not any(counts):
            self._first_token_ms = None
        elif self._first_token_ms is None:
            self._first_token_ms = elapsed
        if durable and self._open_calls is not None and self._slot is not None:
            self._open_calls.mark(self._slot, *counts, self._first_token_ms, elapsed)

    def close(self, outcome: Outcome) -> None:
        """It has ended. Returns at once."""
        prompt, completion, cached = self._counts
        record = replace(
            self._record,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(cached, prompt),
            first_token_ms=self._first_token_ms,
            duration_ms=self._elapsed_ms(),
            outcome=outcome,
        )
        self._ended(record, self._slot)

    def _elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._started))
