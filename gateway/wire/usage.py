"""Usage, as it is listed."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.query import Grouping, UsageQuery, UsageRow, UsageSums
from loragate.adapter_store.usage.record import amount_text
from loragate.adapter_store.usage.service_quality import Reason, Service, ServiceQuery
from loragate.gateway.wire.common import rfc3339

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
    return [*_grouped_by(query), *sum_fields(UsageSums(), None)]


def usage_fields(query: UsageQuery, row: UsageRow, currency: str | None) -> dict[str, Any]:
    """What the row was grouped by, and its sums. `currency` is None where nothing has a price."""
    known = dict(row.keys)
    if "start" in known:
        known |= {"start": rfc3339(known["start"]), "end": rfc3339(known["start"] + query.width.duration)}
    if Grouping.MODEL in query.group_by:
        known["model"] = f"{known['adapter']}:{known['adapter_version']}" if known["adapter"] else known["base_model"]
    if Grouping.ADAPTER in query.group_by:
        known["adapter"] = known["adapter"] or None
    return {name: known[name] for name in _grouped_by(query)} | sum_fields(row.sums, currency)


def sum_fields(sums: UsageSums, currency: str | None) -> dict[str, Any]:
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


def service_object(query: ServiceQuery, service: Service) -> dict[str, Any]:
    """Every reason is told, also one that nobody was turned away for."""
    return {
        "object": "usage.service",
        "start": rfc3339(query.start),
        "end": rfc3339(query.end),
        "requests": service.requests,
        "errors": service.errors,
        "first_token_ms": first_token_object(service.first_token),
        "turned_away": {reason.value: service.turned_away.get(reason, 0) for reason in Reason},
    }


def first_token_object(first: FirstToken | None) -> dict[str, Any] | None:
    """Null where no request got one."""
    return None if first is None else asdict(first)
