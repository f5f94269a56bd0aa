"""Usage of training in the ledger and its sums, and the limits on it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow
from loragate.adapter_store.usage.periods import Width, floor
from loragate.adapter_store.usage.record import Outcome, new_usage_id

TRAINING = "fine_tuning"
"""The endpoint of training in the ledger."""

LIMIT_EXCEEDED = "limit_exceeded"
"""The code of jobs that are rejected, or have failed, because of a limit on training."""


_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TrainingUsage:
    """Tokens of examples that were trained on, and the time of the training process."""

    tokens: int = 0
    milliseconds: int = 0

    def plus(self, other: "TrainingUsage") -> "TrainingUsage":
        """Return the sum of both."""
        return TrainingUsage(self.tokens + other.tokens, self.milliseconds + other.milliseconds)


@dataclass(frozen=True, slots=True)
class TrainingTotals:
    """The usage of a job, and of its tenant's jobs today and this month, in UTC."""

    job: TrainingUsage = TrainingUsage()
    day: TrainingUsage = TrainingUsage()
    month: TrainingUsage = TrainingUsage()

    def plus(self, used: TrainingUsage) -> "TrainingTotals":
        """Return the totals with what is not recorded yet."""
        return TrainingTotals(self.job, self.day.plus(used), self.month.plus(used))

    def exceeded(self, limits: TenantLimits) -> str | None:
        """Return a sentence about the first limit that is used up; None if there is something left of all."""
        if limits.max_job_training_tokens is not None and self.job.tokens > limits.max_job_training_tokens:
            return _sentence("max_job_training_tokens", limits.max_job_training_tokens, self.job.tokens)
        bounds = (
            ("max_job_training_seconds", self.job.milliseconds // 1000),
            ("training_tokens_per_day", self.day.tokens),
            ("training_tokens_per_month", self.month.tokens),
            ("training_seconds_per_day", self.day.milliseconds // 1000),
            ("training_seconds_per_month", self.month.milliseconds // 1000),
        )
        for name, used in bounds:
            limit: int | None = getattr(limits, name)
            if limit is not None and used >= limit:
                return _sentence(name, limit, used)
        return None


def _sentence(name: str, limit: int, used: int) -> str:
    return f"The tenant's limit {name}, {limit}, is used up: {used} were used."


async def training_totals(session: AsyncSession, now: datetime, job: TrainingUsage = TrainingUsage()) -> TrainingTotals:
    """Return the totals of the session's tenant; `job` is the usage of the job in question."""
    today = floor(now, Width.DAY)
    return TrainingTotals(job, await _since(session, today), await _since(session, today.replace(day=1)))


async def is_minute_used_up(session: AsyncSession, limits: TenantLimits, pending: int = 0) -> bool:
    """Return whether `training_tokens_per_minute` is used up, with `pending` tokens that are not recorded yet."""
    limit, row = limits.training_tokens_per_minute, UsageRecordRow
    if limit is None:
        return False
    since = await current_time(session) - _MINUTE
    query = select(func.sum(row.training_tokens)).where(row.started_at > since, row.endpoint == TRAINING)
    return int(await session.scalar(query) or 0) + pending >= limit


async def add_training(
    session: AsyncSession,
    used: TrainingUsage,
    *,
    job_id: str,
    base_model: str,
    amount: int | None,
    now: datetime,
    key_id: str = "",
) -> None:
    """Add to the ledger and its sums. Needs a writing session of one tenant, whose writers take turns."""
    record = {
        "id": new_usage_id(),
        "request_id": job_id,
        "endpoint": TRAINING,
        "base_model": base_model,
        "key_id": key_id,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "training_tokens": used.tokens,
        "duration_ms": used.milliseconds,
        "outcome": Outcome.COMPLETED.value,
        "amount": amount,
        "started_at": now,
    }
    await session.execute(insert(UsageRecordRow).values(**record))
    counts = {"training_tokens": used.tokens, "training_ms": used.milliseconds, "amount": amount or 0}
    for width in Width:
        key = {"width": width.value, "start": floor(now, width), "key_id": key_id, "endpoint": TRAINING}
        await _add_to_sum(session, key | {"base_model": base_model, "adapter": "", "adapter_version": 0}, counts)


async def _add_to_sum(session: AsyncSession, key: dict[str, Any], counts: dict[str, int]) -> None:
    row = UsageSumRow
    here = [getattr(row, name) == value for name, value in key.items()]
    grown = {name: getattr(row, name) + count for name, count in counts.items()}
    known = update(row).where(*here).values(**grown).returning(row.start)
    if (await session.execute(known)).first() is None:
        empty = dict.fromkeys(("requests", "prompt_tokens", "completion_tokens", "cached_tokens"), 0)
        await session.execute(insert(row).values(**key, **empty, **counts))


async def _since(session: AsyncSession, start: datetime) -> TrainingUsage:
    row = UsageSumRow
    sums: tuple[ColumnElement[Any], ...] = (func.sum(row.training_tokens), func.sum(row.training_ms))
    query = select(*sums).where(row.width == Width.DAY.value, row.start >= start, row.endpoint == TRAINING)
    tokens, milliseconds = (await session.execute(query)).one()
    return TrainingUsage(int(tokens or 0), int(milliseconds or 0))
