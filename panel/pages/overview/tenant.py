"""A tenant's overview: the last day, and its busiest adapters."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, TypeVar

from loragate.panel.api import ApiError, Json, SignedOut, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading

_BUSIEST = 5
_HOURS = 24

T = TypeVar("T")


def draw_tenant(context: PageContext) -> None:
    """Draw the page, which is updated every few seconds."""
    with div("head"):
        heading("Overview", f"The last {_HOURS} hours of {context.caller.name}.")
    _Tenant(context).draw()


class _Tenant:
    def __init__(self, context: PageContext) -> None:
        self._context = context

    def draw(self) -> None:
        if self._context.caller.may("usage"):
            AsyncRegion(self._fetch, self._show, every=5)
        else:
            with (
                div("card"),
                empty("o_bar_chart", "No access", "The overview needs a key with the scope “usage”."),
            ):
                link("Go to adapters", "/adapters", "button")

    async def _fetch(self) -> dict[str, Any]:
        now = datetime.now(UTC)
        period = {"start": (now - timedelta(hours=_HOURS - 1)).isoformat(), "end": now.isoformat()}
        hours, adapters, service = await asyncio.gather(
            self._context.api.get("/v1/usage", **period, group_by="hour", limit=100),
            self._context.api.get("/v1/usage", **period, group_by="adapter", limit=100),
            self._context.api.get("/v1/usage/service", hours=_HOURS),
        )
        rows = sorted((row for row in adapters["data"] if row["adapter"]), key=lambda row: -row["requests"])[:_BUSIEST]
        targets = await asyncio.gather(*(self._targets(row["adapter"]) for row in rows))
        rows = [{**row, **target} for row, target in zip(rows, targets, strict=True)]
        return {"hours": hours, "service": service, "rows": rows}

    async def _targets(self, name: str) -> Json:
        """Return the errors of its default alias, and the time to first token of the target with the most requests."""
        if not self._context.caller.may("adapters:read"):
            return {"errors": None, "first": None}
        url = path("v1", "adapters", name, "aliases", "default", "metrics")
        found = await _or_none(self._context.api.get(url, hours=_HOURS))
        targets = [] if found is None else found["targets"]
        busiest = max(targets, key=lambda target: target["requests"], default=None)
        return {"errors": sum(target["errors"] for target in targets), "first": busiest and busiest["ttft_ms"]}

    def _show(self, found: dict[str, Any]) -> None:
        totals, service = found["hours"]["totals"], found["service"]
        if not totals["requests"] and not sum(service["rejected"].values()):
            _nothing()
            return
        with div("grid-figures"):
            figure("Requests", formats.count(totals["requests"]))
            figure("Tokens in", formats.count(totals["prompt_tokens"]))
            figure("Tokens out", formats.count(totals["completion_tokens"]))
            _service_figures(service)
        with div("card"), div("stack"):
            tag("h2", "Tokens by hour")
            names, values = _by_hour(found["hours"]["data"])
            chart.bars("Tokens by hour", values, names)
            muted("Hours in UTC.", "small")
        with tag("section", classes="stack"):
            tag("h2", "Your busiest adapters")
            self._busiest(found["rows"])

    def _busiest(self, rows: list[Json]) -> None:
        columns = [
            Column[Json]("Adapter", lambda row: _linked(row["adapter"]), "break"),
            Column[Json]("Requests", lambda row: formats.count(row["requests"]), "number"),
            Column[Json]("Tokens out", lambda row: formats.count(row["completion_tokens"]), "number"),
            Column[Json]("Errors", lambda row: formats.count(row["errors"]), "number"),
            Column[Json](
                "Time to first token, median", lambda row: _ms(row["first"] and row["first"]["p50"]), "number"
            ),
            Column[Json]("Time to first token, p99", lambda row: _ms(row["first"] and row["first"]["p99"]), "number"),
        ]
        with div("card flush"):
            if rows:
                table("Your busiest adapters", columns, rows, itemgetter("adapter"))
            else:
                with empty("o_layers", "Only the base model", "No adapter was used in this period."):
                    link("Go to adapters", "/adapters", "button")


def _nothing() -> None:
    words = "Upload an adapter, or try the base model in the playground."
    with div("card"), empty("o_rocket_launch", "No requests yet", words), div("row-of"):
        link("Upload an adapter", "/adapters", "button primary")
        link("Open the playground", "/playground", "button")


def _service_figures(service: Json) -> None:
    first, rejected = service["ttft_ms"], service["rejected"]
    slow = f"median; 95 % within {_ms(first['p95'])}" if first else "no responses yet"
    figure("Time to first token", _ms(first and first["p50"]), slow)
    figure("Errors", formats.count(service["errors"]), f"of the last {formats.count(service['requests'])} requests")
    limited, overloaded = formats.count(rejected["rate_limited"]), formats.count(rejected["overloaded"])
    figure("Rejected", formats.count(sum(rejected.values())), f"{limited} rate limited, {overloaded} overloaded")


async def _or_none(work: Awaitable[T]) -> T | None:
    """Return None for an error, such as for a deleted adapter's metrics."""
    try:
        return await work
    except SignedOut:
        raise
    except ApiError:
        return None


def _linked(name: str) -> None:
    link(name, path("adapters", name))


def _by_hour(rows: list[Json]) -> tuple[list[str], list[float]]:
    tokens = {row["start"][:13]: row["total_tokens"] for row in rows}
    now = datetime.now(UTC)
    hours = [(now - timedelta(hours=back)).isoformat()[:13] for back in reversed(range(_HOURS))]
    return [f"{hour[11:]}:00" for hour in hours], [tokens.get(hour, 0) for hour in hours]


def _ms(value: float | None) -> str:
    return "–" if value is None else formats.seconds(value / 1000)
