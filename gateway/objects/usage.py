"""Usage, as it is listed."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.usage import query as stored
from loragate.adapter_store.usage import service_quality
from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.query import Grouping, UsageQuery
from loragate.adapter_store.usage.record import amount_text
from loragate.adapter_store.usage.service_quality import Reason, ServiceQuery
from loragate.gateway.objects.adapters import TtftMs
from loragate.gateway.objects.common import Count, Moment, Page, rfc3339

Amount = Annotated[str | None, Field(description="A decimal number, in the currency; null where nothing has a price.")]


class UsageSums(TypedDict):
    """`cached_tokens` are among the prompts'."""

    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cached_tokens: Count
    amount: Amount
    currency: str | None


class UsageRow(UsageSums):
    """The sums of one group, and what it was grouped by."""

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
    """Requests that were rejected: over a limit of the tenant (`rate_limited`), or while the engine was overloaded."""

    rate_limited: Count
    overloaded: Count


class Service(TypedDict):
    """How requests between `start` and `end` were served. `requests` are the latest admitted ones, at most 10,000;
    `errors` of them failed because of the server; `ttft_ms` is their time to the first token. `rejected` counts all
    others."""

    object: Literal["usage.service"]
    start: Moment
    end: Moment
    requests: Count
    errors: Count
    ttft_ms: TtftMs | None
    rejected: Rejections


class UsageList(Page):
    """The latest first. `totals` are those of all pages."""

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
    """Of `usage_fields`, in their order."""
    return [*_grouped_by(query), *sum_fields(stored.UsageSums(), None)]


def usage_fields(query: UsageQuery, row: stored.UsageRow, currency: str | None) -> dict[str, Any]:
    """What the row was grouped by, and its sums. `currency` is None where nothing has a price."""
    known = dict(row.keys)
    if "start" in known:
        known |= {"start": rfc3339(known["start"]), "end": rfc3339(known["start"] + query.width.duration)}
    if Grouping.MODEL in query.group_by:
        known["model"] = f"{known['adapter']}:{known['adapter_version']}" if known["adapter"] else known["base_model"]
    if Grouping.ADAPTER in query.group_by:
        known["adapter"] = known["adapter"] or None
    return {name: known[name] for name in _grouped_by(query)} | sum_fields(row.sums, currency)


def sum_fields(sums: stored.UsageSums, currency: str | None) -> dict[str, Any]:
    """`amount` is a decimal number as text, in the currency's unit; null where nothing has a price."""
    priced = currency is not None or sums.amount > 0
    return {
        "requests": sums.requests,
        "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "total_tokens": sums.prompt_tokens + sums.completion_tokens,
        "cached_tokens": sums.cached_tokens,
        "amount": amount_text(sums.amount) if priced else None,
        "currency": currency,
    }


def _grouped_by(query: UsageQuery) -> Iterator[str]:
    return (name for grouping in Grouping if grouping in query.group_by for name in _FIELDS[grouping])


def service_object(query: ServiceQuery, service: service_quality.Service) -> dict[str, Any]:
    """Return the object with all reasons of rejections, also those without a request."""
    return {
        "object": "usage.service",
        "start": rfc3339(query.start),
        "end": rfc3339(query.end),
        "requests": service.requests,
        "errors": service.errors,
        "ttft_ms": first_token_object(service.first_token),
        "rejected": {reason.value: service.rejected.get(reason, 0) for reason in Reason},
    }


def first_token_object(first: FirstToken | None) -> dict[str, Any] | None:
    """Null where no request got one."""
    return None if first is None else asdict(first)
