"""Queries of usage, computed from the sums by hour and day, never from the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.tables.usage import UsageSumRow
from loragate.adapter_store.usage.cursor import read_cursor, write_cursor
from loragate.adapter_store.usage.periods import Width, ceil, floor
from loragate.adapter_store.usage.record import BATCH


class Grouping(StrEnum):
    """Dimensions by which usage can be grouped."""

    HOUR = "hour"
    DAY = "day"
    TENANT = "tenant"
    KEY = "key"
    ENDPOINT = "endpoint"
    ADAPTER = "adapter"
    MODEL = "model"  # an adapter's version, or the base model


_COLUMNS: Mapping[Grouping, tuple[str, ...]] = {
    Grouping.HOUR: ("start",),
    Grouping.DAY: ("start",),
    Grouping.TENANT: ("tenant_id",),
    Grouping.KEY: ("key_id",),
    Grouping.ENDPOINT: ("endpoint",),
    Grouping.ADAPTER: ("adapter",),
    Grouping.MODEL: ("base_model", "adapter", "adapter_version"),
}
_COUNTS = (
    *("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "amount"),
    *("training_tokens", "training_ms"),
    *("computed_prompt_tokens", "generated_tokens"),
)


@dataclass(frozen=True, slots=True)
class UsageSums:
    """Sums of usage. `amount` is in 10⁻¹⁰ of the currency's unit; cached tokens are included in the prompt tokens, and
    not in the computed ones."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    amount: int = 0
    training_tokens: int = 0
    training_ms: int = 0
    computed_prompt_tokens: int = 0
    generated_tokens: int = 0

    @property
    def limited_tokens(self) -> int:
        """The tokens that count for limits: those that were computed, and those of prompts found in the cache."""
        return self.computed_prompt_tokens + self.cached_tokens + self.generated_tokens


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The sums of one group. `keys` has only the grouped columns; without an adapter, `adapter` is ""."""

    cursor: str
    keys: Mapping[str, Any]
    sums: UsageSums


@dataclass(frozen=True)
class UsageQuery:
    """A query of usage in [`start`, `end`), both widened to whole hours or days. `only` filters by columns' values;
    `batches` are left out unless they are wanted."""

    start: datetime
    end: datetime
    group_by: frozenset[Grouping] = frozenset()
    only: Mapping[str, str] = field(default_factory=dict)
    batches: bool = True

    def __post_init__(self) -> None:
        if {Grouping.HOUR, Grouping.DAY} <= self.group_by:
            raise Invalid("Usage is grouped by hour or by day, not by both.", param="group_by")
        object.__setattr__(self, "start", floor(self.start, self.width))
        object.__setattr__(self, "end", ceil(self.end, self.width))
        if self.start >= self.end:
            raise Invalid("`start` must be before `end`.", param="start")

    @property
    def width(self) -> Width:
        """The period of the sums to read: the longest that the query allows."""
        whole_days = floor(self.start, Width.DAY) == self.start and floor(self.end, Width.DAY) == self.end
        by_hour = Grouping.HOUR in self.group_by or (Grouping.DAY not in self.group_by and not whole_days)
        return Width.HOUR if by_hour else Width.DAY

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to group by, in the order of the result: the latest first, then by name."""
        names = (name for grouping in Grouping if grouping in self.group_by for name in _COLUMNS[grouping])
        return tuple(dict.fromkeys(names))

    def totals(self) -> "Select[*tuple[Any, ...]]":
        """Return the query for one row of `UsageSums`' values or nulls."""
        return select(*_sums()).where(*self._conditions())

    def rows(self, after: str | None, limit: int) -> "Select[*tuple[Any, ...]]":
        """Return the query for up to `limit` groups after the cursor `after`. Raise Invalid for an invalid cursor."""
        columns = [getattr(UsageSumRow, name) for name in self.columns]
        query = select(*columns, *_sums()).where(*self._conditions()).group_by(*columns)
        if after is not None:
            query = query.where(_behind(self.columns, read_cursor(after, self.columns)))
        order = [column.desc() if column.key == "start" else column for column in columns]
        return query.order_by(*order).limit(limit)

    def row_of(self, row: Row[*tuple[Any, ...]]) -> UsageRow:
        """Return the usage in a row of `rows`."""
        keys = dict(zip(self.columns, row, strict=False))
        return UsageRow(write_cursor(keys), keys, sums_of(row[len(keys) :]))

    def _conditions(self) -> list[ColumnElement[bool]]:
        row = UsageSumRow
        named = [getattr(row, name) == value for name, value in self.only.items()]
        wanted = [] if self.batches else [row.endpoint.not_like(f"{BATCH}%")]
        return [row.width == self.width.value, row.start >= self.start, row.start < self.end, *named, *wanted]


def sums_of(values: "tuple[Any, ...] | Row[*tuple[Any, ...]]") -> UsageSums:
    """Return sums as integers: sums of no rows are null, and Postgres' sums are decimals."""
    return UsageSums(*(int(value or 0) for value in values))


def _sums() -> list[ColumnElement[Any]]:
    return [func.sum(getattr(UsageSumRow, name)) for name in _COUNTS]


def _behind(names: tuple[str, ...], position: tuple[Any, ...]) -> ColumnElement[bool]:
    """Return the condition for rows after this position: `start` descends, all other columns ascend."""
    columns = [getattr(UsageSumRow, name) for name in names]
    steps = []
    for index, (column, value) in enumerate(zip(columns, position, strict=True)):
        same = [c == v for c, v in zip(columns[:index], position[:index], strict=True)]
        steps.append(and_(*same, column < value if column.key == "start" else column > value))
    return or_(*steps) if steps else UsageSumRow.width != UsageSumRow.width
