"""Usage of each target of an alias, from the ledger, because the sums have no outcomes and no times to first token."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.tables.usage import UsageRecordRow
from loragate.adapter_store.usage.first_token import FirstToken, at_ranks, first_token_of
from loragate.adapter_store.usage.record import Outcome

ERRORS = (Outcome.FAILED.value, Outcome.CRASHED.value)


@dataclass(frozen=True)
class AliasTargetUsage:
    """Usage of one target. `errors` are requests that failed through a fault of the server; disconnects are not."""

    version: int
    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: FirstToken | None = None


@dataclass(frozen=True)
class AliasTargetQuery:
    """A query of requests to this alias of this adapter that began in [`start`, `end`)."""

    adapter: str
    alias: str
    start: datetime
    end: datetime

    async def targets(self, session: AsyncSession) -> tuple[AliasTargetUsage, ...]:
        """Run the query, in two statements; return the usage by version, without versions that had no request."""
        quantiles = {version: rest for version, *rest in await session.execute(self._quantiles())}
        found = await session.execute(self._sums())
        return tuple(_usage_of(row, quantiles.get(row.version)) for row in found)

    def _sums(self) -> Select[*tuple[Any, ...]]:
        row = UsageRecordRow
        columns: tuple[Any, ...] = (
            row.adapter_version.label("version"),
            func.count().label("requests"),
            func.sum(case((row.outcome.in_(ERRORS), 1), else_=0)).label("errors"),
            func.sum(row.prompt_tokens).label("prompt_tokens"),
            func.sum(row.completion_tokens).label("completion_tokens"),
            func.avg(row.ttft_ms).label("mean"),
        )
        return select(*columns).where(*self._wanted()).group_by(row.adapter_version).order_by(row.adapter_version)

    def _quantiles(self) -> Select[*tuple[Any, ...]]:
        row = UsageRecordRow
        ranked = (
            select(
                row.adapter_version.label("version"),
                row.ttft_ms.label("ms"),
                func.row_number().over(partition_by=row.adapter_version, order_by=row.ttft_ms).label("place"),
                func.count().over(partition_by=row.adapter_version).label("all"),
            )
            .where(*self._wanted(), row.ttft_ms.is_not(None))
            .subquery()
        )
        columns: tuple[Any, ...] = (ranked.c.version, *at_ranks(ranked))
        return select(*columns).group_by(ranked.c.version)

    def _wanted(self) -> tuple[ColumnElement[bool], ...]:
        row = UsageRecordRow
        named = (row.adapter == self.adapter, row.adapter_alias == self.alias)
        return (*named, row.started_at >= self.start, row.started_at < self.end)


def _usage_of(row: Any, quantiles: list[Any] | None) -> AliasTargetUsage:
    """Return the usage in a row; Postgres' sums are decimals."""
    first = None if quantiles is None else first_token_of(row.mean, quantiles)
    return AliasTargetUsage(
        version=row.version,
        requests=row.requests,
        errors=int(row.errors),
        prompt_tokens=int(row.prompt_tokens),
        completion_tokens=int(row.completion_tokens),
        first_token=first,
    )
