"""What one inference request used, and what that is worth."""

import itertools
import os
import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

AMOUNT_DIGITS = 10
"""Amounts are kept as whole numbers of 10⁻¹⁰ of the currency's unit: exact, and sums of them are too."""

_process = os.urandom(6).hex()
_numbers = itertools.count()


class Outcome(StrEnum):
    """How a request ended. Whatever it was, the tokens are those that the client was told."""

    COMPLETED = "completed"
    DISCONNECTED = "disconnected"  # its client left, or took no more bytes
    FAILED = "failed"  # with an error that its client was told
    CANCELLED = "cancelled"  # by us: the server had to stop
    SHED = "shed"  # refused by the engine, which had too much to do; its client was told nothing else
    CRASHED = "crashed"  # with the gateway process that served it


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Immutable, written once. `id` is made by this server (see `new_usage_id`): a client may send the same
    `x-request-id` as often as it likes. Times are milliseconds; `cached_tokens` are among `prompt_tokens`."""

    id: str
    request_id: str
    tenant_id: str
    key_id: str
    endpoint: str  # chat, completions or embeddings
    base_model: str
    started_at: datetime  # decides on the hour and the day that it is counted in
    adapter: str | None = None  # the next three are of this adapter, and None without one
    adapter_version: int | None = None
    adapter_alias: str | None = None  # None where the version itself was asked for
    adapter_digest: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    ttft_ms: int | None = None
    duration_ms: int = 0
    outcome: Outcome = Outcome.COMPLETED
    amount: int | None = None  # in 10⁻¹⁰; None where no price was set

    def __post_init__(self) -> None:
        assert self.started_at.tzinfo is not None
        assert 0 <= self.cached_tokens <= self.prompt_tokens
        assert self.completion_tokens >= 0


def new_usage_id() -> str:
    """Unique, and in the order of time, so that an index of them grows at its end."""
    return f"{_of_millisecond(time.time_ns() // 1_000_000)}{_process}{next(_numbers) & 0xFFFFFFFF:08x}"


def usage_id_at(moment: datetime) -> str:
    """No request that began at that moment or later has a lesser id: it is made just before the request begins."""
    return _of_millisecond(int((moment.timestamp() - 1) * 1000))


def _of_millisecond(milliseconds: int) -> str:
    return f"use_{milliseconds:012x}"


def amount_text(amount: int) -> str:
    """`0.00125`: in the currency's unit, without the zeros at the end."""
    return format(Decimal(amount).scaleb(-AMOUNT_DIGITS).normalize() + 0, "f")
