"""Usage and service quality."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.usage import query as stored
from loragate.adapter_store.usage import service_quality
from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.query import Grouping, UsageQuery
from loragate.adapter_store.usage.record import amount_text
from loragate.adapter_store.usage.service_quality import Reason, ServiceQuery
from loragate.gateway.objects.common import Count, Moment, Page

Amount = Annotated[
    str | None, Field(description="A decimal number, in units of the currency; null if there are no prices.")
]


class TtftMs(TypedDict):
    """Milliseconds from the receipt of a request to its first token, over the requests that received one."""

    mean: float
    p50: Count
    p90: Count
    p95: Count
    p99: Count


class UsageSums(TypedDict):
    """Sums over requests and training. `prompt_tokens` includes `cached_tokens`. The first four counts of tokens are
    those delivered to clients; `computed_prompt_tokens` and `generated_tokens` are those that the engine computed,
    delivered or not."""

    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cached_tokens: Count
    training_tokens: Count
    training_seconds: Count
    amount: Amount
    currency: str | None
    computed_prompt_tokens: Count
    generated_tokens: Count


class UsageRow(UsageSums):
    """The sums of one group, with the values by which it was grouped."""

    object: Literal["usage"]
    id: str
    start: NotRequired[Moment]
    end: NotRequired[Moment]
    tenant_id: NotRequired[str]
    key_id: NotRequired[str]
    endpoint: NotRequired[str]
    adapter: NotRequired[str | None]
    model: NotRequired[str]


class Rejections(TypedDict):
    """Requests that were rejected because of one of the tenant's limits, or because the engine was overloaded."""

    rate_limited: Count
    overloaded: Count


class Service(TypedDict):
    """Service quality between `start` and `end`. `requests` counts at most the latest 10,000 admitted requests,
    `errors` those of them that failed because of the server."""

    object: Literal["usage.service"]
    start: Moment
    end: Moment
    requests: Count
    errors: Count
    ttft_ms: TtftMs | None
    rejected: Rejections


class UsageList(Page):
    """Newest first. `totals` are the sums over all pages."""

    data: list[UsageRow]
    start: Moment
    end: Moment
    totals: UsageSums


_FIELDS: dict[Grouping, tuple[str, ...]] = {
    Grouping.HOUR: ("start", "end"),
    Grouping.DAY: ("start", "end"),
    Grouping.TENANT: ("tenant_id",),
    Grouping.KEY: ("key_id",),
    Grouping.ENDPOINT: ("endpoint",),
    Grouping.ADAPTER: ("adapter",),
    Grouping.MODEL: ("model",),
}


def field_names(query: UsageQuery) -> list[str]:
    """Return the names of `usage_fields`, in their order."""
    return [*_grouped_by(query), *sum_fields(stored.UsageSums(), None)]


def usage_row(query: UsageQuery, row: stored.UsageRow, currency: str | None) -> UsageRow:
    """Return a row of the list."""
    return cast(UsageRow, {"object": "usage", "id": row.cursor, **usage_fields(query, row, currency)})


def usage_fields(query: UsageQuery, row: stored.UsageRow, currency: str | None) -> dict[str, Any]:
    """Return the values by which the row was grouped, and its sums. `currency` is None if nothing has a price."""
    known = dict(row.keys)
    if "start" in known:
        known |= {"start": rfc3339(known["start"]), "end": rfc3339(known["start"] + query.width.duration)}
    if Grouping.MODEL in query.group_by:
        known["model"] = f"{known['adapter']}:{known['adapter_version']}" if known["adapter"] else known["base_model"]
    if Grouping.ADAPTER in query.group_by:
        known["adapter"] = known["adapter"] or None
    return {**{name: known[name] for name in _grouped_by(query)}, **sum_fields(row.sums, currency)}


def sum_fields(sums: stored.UsageSums, currency: str | None) -> UsageSums:
    """Return the sums. `amount` is a decimal number as text, in units of the currency; null if nothing has a price."""
    priced = currency is not None or sums.amount > 0
    return {
        "requests": sums.requests,
        "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "total_tokens": sums.prompt_tokens + sums.completion_tokens,
        "cached_tokens": sums.cached_tokens,
        "training_tokens": sums.training_tokens,
        "training_seconds": sums.training_ms // 1000,
        "amount": amount_text(sums.amount) if priced else None,
        "currency": currency,
        "computed_prompt_tokens": sums.computed_prompt_tokens,
        "generated_tokens": sums.generated_tokens,
    }


def _grouped_by(query: UsageQuery) -> Iterator[str]:
    return (name for grouping in Grouping if grouping in query.group_by for name in _FIELDS[grouping])


def service_object(query: ServiceQuery, service: service_quality.Service) -> Service:
    """Return how requests were served. Every reason of a rejection is listed, also one with a count of 0."""
    return {
        "object": "usage.service",
        "start": rfc3339(query.start),
        "end": rfc3339(query.end),
        "requests": service.requests,
        "errors": service.errors,
        "ttft_ms": first_token_object(service.first_token),
        "rejected": {
            "rate_limited": service.rejected.get(Reason.LIMIT, 0),
            "overloaded": service.rejected.get(Reason.OVERLOAD, 0),
        },
    }


def first_token_object(first: FirstToken | None) -> TtftMs | None:
    """Return the distribution of the time to first token; None if no request received a token."""
    if first is None:
        return None
    return {"mean": first.mean, "p50": first.p50, "p90": first.p90, "p95": first.p95, "p99": first.p99}


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_lines(rows: Iterable[Iterable[object]]) -> bytes:
    """Return rows of text and numbers. None is an empty cell."""
    lines = io.StringIO()
    csv.writer(lines).writerows([_cell(value) for value in row] for row in rows)
    return lines.getvalue().encode()


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front, so that it stays text."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
