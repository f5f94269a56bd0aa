"""Usage records: the tokens and the price of one inference request."""

import itertools
import os
import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

AMOUNT_DIGITS = 10
"""Amounts are kept as whole numbers of 10⁻¹⁰ of the currency's unit: they and their sums are exact."""

BATCH = "batch."
"""The beginning of the endpoints of batches' lines."""

_process = os.urandom(6).hex()
_numbers = itertools.count()


class Outcome(StrEnum):
    """The end of a request. In each case the record counts the tokens that were delivered to the client, and those that
    were computed for it."""

    COMPLETED = "completed"
    DISCONNECTED = "disconnected"  # its client left, or stopped reading
    FAILED = "failed"  # with an error that was reported to the client
    CANCELLED = "cancelled"  # by the server, which had to stop
    SHED = "shed"  # rejected by the overloaded engine before any output
    CRASHED = "crashed"  # with the gateway process that served it


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """The usage of a request; immutable, written once.

    This server makes `id` (see `new_usage_id`), because a client may repeat its `x-request-id`. Times are in
    milliseconds; `cached_tokens` are included in `prompt_tokens`. Prompt and completion tokens are those delivered to
    the client; `computed_prompt_tokens` and `generated_tokens` are those that the engine computed, delivered or not.
    """

    id: str
    request_id: str
    tenant_id: str
    key_id: str
    endpoint: str  # chat, completions or embeddings; batch.chat and so on of a batch's lines
    base_model: str
    started_at: datetime  # determines the hour and the day in which it is counted
    adapter: str | None = None  # the next three describe this adapter; None without one
    adapter_version: int | None = None
    adapter_alias: str | None = None  # None if the version itself was requested
    adapter_digest: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    computed_prompt_tokens: int | None = None  # the next two: None where an earlier version wrote the record
    generated_tokens: int | None = None
    ttft_ms: int | None = None
    duration_ms: int = 0
    outcome: Outcome = Outcome.COMPLETED
    engine_id: str | None = None  # that its last prompt was sent to; None if none was, or where it is not known
    amount: int | None = None  # in 10⁻¹⁰; None where no price was set

    def __post_init__(self) -> None:
        assert self.started_at.tzinfo is not None
        assert 0 <= self.cached_tokens <= self.prompt_tokens
        assert self.completion_tokens >= 0

    @property
    def computed(self) -> tuple[int, int]:
        """The prompt tokens and completion tokens that were computed; those delivered where nothing else is known."""
        prompt, generated = self.computed_prompt_tokens, self.generated_tokens
        return (
            self.prompt_tokens - self.cached_tokens if prompt is None else prompt,
            self.completion_tokens if generated is None else generated,
        )


def new_usage_id() -> str:
    """Return a unique id; ids are in the order of time, so that their index grows at its end."""
    return f"{_of_millisecond(time.time_ns() // 1_000_000)}{_process}{next(_numbers) & 0xFFFFFFFF:08x}"


def usage_id_at(moment: datetime) -> str:
    """Return a lower bound of the ids of requests that began at `moment` or later: ids are made just before."""
    return _of_millisecond(int((moment.timestamp() - 1) * 1000))


def _of_millisecond(milliseconds: int) -> str:
    return f"use_{milliseconds:012x}"


def amount_text(amount: int) -> str:
    """Return an amount in the currency's unit, such as `0.00125`, without trailing zeros."""
    return format(Decimal(amount).scaleb(-AMOUNT_DIGITS).normalize() + 0, "f")
