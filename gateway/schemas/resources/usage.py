"""Query parameters of the usage routes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AfterValidator, WithJsonSchema

from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.query import Grouping, UsageQuery
from loragate.adapter_store.usage.repository import MAX_ROWS
from loragate.gateway.errors import InvalidRequest

_DEFAULT_PERIOD = timedelta(days=30)
_YEARS = range(2000, 2101)


def _moment(value: datetime) -> datetime:
    if value.year not in _YEARS:
        raise ValueError(f"the year must be between {_YEARS[0]} and {_YEARS[-1]}")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


Moment = Annotated[
    datetime | None,
    AfterValidator(lambda value: None if value is None else _moment(value)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}, {"type": "number"}]}
    ),
    Query(description="RFC 3339, a date, or Unix seconds; UTC if there is no time zone."),
]
Name = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9._-]{0,64}$")]
Id = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_]{1,64}$")]


@dataclass(frozen=True, slots=True)
class UsageParams:
    """The query parameters of both usage routes."""

    start: datetime | None
    end: datetime | None
    group_by: tuple[str, ...]
    only: dict[str, str]
    after: str | None
    limit: int
    format: Literal["json", "csv"] | None

    def query(self, *, default: tuple[Grouping, ...], allowed: frozenset[Grouping], **only: str | None) -> UsageQuery:
        """Return the query, with `only` as further filters. Raise InvalidRequest and Invalid."""
        unknown = [name for name in self.group_by if name not in allowed]
        if unknown:
            words = f"the groupings are {', '.join(grouping for grouping in Grouping if grouping in allowed)}"
            raise InvalidRequest(f"Invalid 'group_by': {words}.", param="group_by", code="invalid_value")
        end = self.end or utc_now()
        filters = self.only | {name: value for name, value in only.items() if value is not None}
        groupings = frozenset(map(Grouping, self.group_by)) or frozenset(default)
        return UsageQuery(self.start or end - _DEFAULT_PERIOD, end, groupings, filters)


async def usage_params(
    start: Moment = None,
    end: Moment = None,
    group_by: Annotated[
        list[str] | None,
        Query(max_length=8, description="Groupings: repeat the parameter, or separate by commas."),
    ] = None,
    adapter: Annotated[Name, Query(description="Only this adapter; if empty, only the base model.")] = None,
    key_id: Id = None,
    after: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 100,
    format: Annotated[Literal["json", "csv"] | None, Query(description="Defaults to the Accept header.")] = None,
) -> UsageParams:
    """Return the parameters, as a dependency of both routes."""
    groupings = tuple(name.strip() for each in group_by or () for name in each.split(",") if name.strip())
    given = {"adapter": adapter, "key_id": key_id}
    only = {name: value for name, value in given.items() if value is not None}
    return UsageParams(start, end, groupings, only, after, limit, format)
