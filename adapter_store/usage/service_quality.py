"""Quality of service of a tenant: errors, times to first token and rejections of its latest requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, Subquery, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.tables.usage import RejectedRequestsRow, UsageRecordRow
from loragate.adapter_store.usage.first_token import FirstToken, at_ranks, first_token_of
from loragate.adapter_store.usage.periods import Width, ceil, floor
from loragate.adapter_store.usage.record import BATCH, Outcome, usage_id_at
from loragate.adapter_store.usage.target_usage import ERRORS
from loragate.adapter_store.usage.training import TRAINING

MAX_REQUESTS = 10_000


class Reason(StrEnum):
    """Why a request was rejected before the engine did anything for it."""

    LIMIT = "rate_limited"  # its tenant's, key's or adapter's
    OVERLOAD = "overloaded"  # the engine was overloaded


@dataclass(frozen=True)
class Service:
    """Quality of service: of the latest `requests`, `errors` failed through a fault of the server. `rejected` counts
    all others."""

    requests: int = 0
    errors: int = 0
    first_token: FirstToken | None = None
    rejected: Mapping[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceQuery:
    """A query of requests that began in [`start`, `end`), both widened to whole hours."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", floor(self.start, Width.HOUR))
        object.__setattr__(self, "end", ceil(self.end, Width.HOUR))

    async def service(self, session: AsyncSession) -> Service:
        """Run the query: three statements over at most `MAX_REQUESTS` of the ledger's rows."""
        latest = self._latest()
        sums = (await session.execute(_sums(latest))).one()
        quantiles = (await session.execute(_quantiles(latest))).one()
        rejected = {Reason(reason): int(requests) for reason, requests in await session.execute(self._rejected())}
        first = None if sums.mean is None else first_token_of(sums.mean, tuple(quantiles))
        return Service(sums.requests, int(sums.errors or 0), first, rejected)

    def _latest(self) -> Subquery:
        """Return the latest requests by the ledger's key: the tenant and an id in the order of time."""
        row = UsageRecordRow
        latest = select(row.outcome.label("outcome"), row.ttft_ms.label("ms"))
        latest = latest.where(
            row.id >= usage_id_at(self.start), row.started_at >= self.start, row.started_at < self.end
        )
        latest = latest.where(row.outcome != Outcome.SHED.value, row.endpoint != TRAINING)
        latest = latest.where(row.endpoint.not_like(f"{BATCH}%"))
        return latest.order_by(row.id.desc()).limit(MAX_REQUESTS).subquery()

    def _rejected(self) -> Select[*tuple[Any, ...]]:
        row = RejectedRequestsRow
        counted = select(row.reason, func.sum(row.requests)).group_by(row.reason)
        return counted.where(row.start >= self.start, row.start < self.end)


def _sums(latest: Subquery) -> Select[*tuple[Any, ...]]:
    failed = func.sum(case((latest.c.outcome.in_(ERRORS), 1), else_=0))
    columns = (func.count().label("requests"), failed.label("errors"), func.avg(latest.c.ms).label("mean"))
    return select(*columns).select_from(latest)


def _quantiles(latest: Subquery) -> Select[*tuple[Any, ...]]:
    place = func.row_number().over(order_by=latest.c.ms).label("place")
    ranked = select(latest.c.ms.label("ms"), place, func.count().over().label("all")).where(latest.c.ms.is_not(None))
    return select(*at_ranks(ranked.subquery()))
