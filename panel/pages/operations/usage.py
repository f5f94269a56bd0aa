"""Usage by day, tenant, key, adapter, model or endpoint."""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from loragate.panel.api import Json
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.fields import choice_field
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.tenant_names import TenantNames

_PERIODS = {1: "Today", 7: "7 days", 30: "30 days", 90: "90 days"}
_GROUPS = {"day": "Day", "adapter": "Adapter", "key": "Key", "model": "Version", "endpoint": "Endpoint"}
_OPERATORS = {"tenant": "Tenant"}
_NAMES = {
    "day": "Day",
    "tenant": "Tenant",
    "key": "Key",
    "adapter": "Adapter",
    "model": "Model",
    "endpoint": "Endpoint",
}


def draw(context: PageContext) -> None:
    """Draw the totals, a chart by day, and a table."""
    _Usage(context).draw()


class _Usage:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._at = "/admin/v1/usage" if context.caller.is_operator else "/v1/usage"
        self._days = 30
        self._group = "tenant" if context.caller.is_operator else "adapter"
        self._tenants = TenantNames(context.api)

    def draw(self) -> None:
        with div("head"):
            heading("Usage", "Whole days in UTC. A request is counted within five seconds after its end.")
            with div("actions"):
                self._csv = tag("a", "Download CSV", classes="button", href=self._csv_address(), download="usage.csv")
        with div("stack wide"):
            self._parts()

    def _parts(self) -> None:
        with div("tools"):
            period = choice_field("Period", _PERIODS, self._days)
            groups = (_OPERATORS if self._context.caller.is_operator else {}) | _GROUPS
            group = choice_field("Group by", groups, self._group)
        self._sums = AsyncRegion(self._fetch_days, self._show_days, every=30)
        self._rows = Listing(self._fetch_rows, self._show_rows, _nothing, every=30)
        period.on_value_change(lambda event: self._choose(days=event.value))
        group.on_value_change(lambda event: self._choose(group=event.value))

    async def _choose(self, *, days: int | None = None, group: str | None = None) -> None:
        self._days = days or self._days
        self._group = group or self._group
        self._csv.props["href"] = self._csv_address()
        await self._sums.load()
        await self._rows.restart()

    def _period(self) -> dict[str, str]:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        start, end = today - timedelta(days=self._days - 1), today + timedelta(days=1)
        return {"start": start.date().isoformat(), "end": end.date().isoformat()}

    def _csv_address(self) -> str:
        return f"/transfer/usage.csv?{urlencode({**self._period(), 'group_by': self._group})}"

    async def _fetch_days(self) -> Json:
        return await self._context.api.get(self._at, **self._period(), group_by="day", limit=100)

    async def _fetch_rows(self, after: str | None) -> Json:
        page = await self._context.api.get(self._at, **self._period(), group_by=self._group, after=after, limit=ROWS)
        if self._group == "tenant":
            await self._tenants.fetch(row["tenant_id"] for row in page["data"])
        return page

    def _show_days(self, page: Json) -> None:
        totals = page["totals"]
        with div("grid-figures"):
            figure("Requests", formats.count(totals["requests"]))
            figure("Tokens in", formats.count(totals["prompt_tokens"]), _cached(totals))
            figure("Tokens out", formats.count(totals["completion_tokens"]))
            if totals["training_tokens"]:
                hours = totals["training_seconds"] / 3600
                figure("Tokens in training", formats.count(totals["training_tokens"]), f"{hours:.1f} hours")
            if totals["amount"] is not None:
                figure("Amount", f"{float(totals['amount']):,.2f} {totals['currency']}")
        by_day = {row["start"][:10]: row["total_tokens"] for row in page["data"]}
        first = datetime.fromisoformat(self._period()["start"])
        days = [(first + timedelta(days=number)).date().isoformat() for number in range(self._days)]
        if self._days > 1:
            with div("card"), div("stack"):
                tag("h2", "Tokens by day")
                chart.bars("Tokens by day", [by_day.get(day, 0) for day in days], [day[5:] for day in days])

    def _show_rows(self, page: Json) -> None:
        columns = [
            Column[Json](_NAMES[self._group], self._who, "break"),
            Column[Json]("Requests", lambda row: formats.count(row["requests"]), "number"),
            Column[Json]("Tokens in", lambda row: formats.count(row["prompt_tokens"]), "number"),
            Column[Json]("Tokens out", lambda row: formats.count(row["completion_tokens"]), "number"),
            Column[Json]("Amount", _amount, "number"),
        ]
        table("Usage", columns[:4] if page["totals"]["amount"] is None else columns, page["data"], self._who)

    def _who(self, row: Json) -> str:
        match self._group:
            case "day":
                return str(row["start"][:10])
            case "tenant":
                return self._tenants.name(row["tenant_id"])
            case "key":
                return str(row["key_id"])
            case "adapter":
                return str(row["adapter"] or "base model only")
            case _:
                return str(row[self._group])


def _nothing() -> None:
    with empty("o_bar_chart", "No usage yet", "Requests appear here a few seconds after they end."):
        pass


def _cached(totals: Json) -> str:
    prompts = totals["prompt_tokens"]
    return f"{totals['cached_tokens'] * 100 / prompts:.0f} % from the cache" if prompts else ""


def _amount(row: Json) -> str:
    return "–" if row["amount"] is None else f"{float(row['amount']):,.4f} {row['currency']}"
