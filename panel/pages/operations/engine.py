"""The engines, for the operator: a list where there are several; batch, queues, memory, slots and step times of one."""

from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from urllib.parse import urlencode

from loragate.panel.api import ApiError, Json
from loragate.panel.exposition import Exposition, parse
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.display.queues import Queue, queues
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.tenant_names import TenantNames

_EVERY = 2.0
_SAMPLES = 60
_MAX_SLOTS = 256
_MAX_QUEUES = 20
_MAX_TENANTS = 50
_OTHERS = "other"
_COUNTED = {
    "requests": "requests",
    "rejected": "rejected_requests",
    "shed": "shed_requests",
    "tokens": "completion_tokens",
}
_TENANTS = (
    Column[Json]("Tenant", lambda row: str(row["name"]), "break"),
    Column[Json]("Requests", lambda row: formats.count(row["requests"]), "number"),
    Column[Json]("Rate limited", lambda row: formats.count(row["rejected"]), "number"),
    Column[Json]("Shed", lambda row: formats.count(row["shed"]), "number"),
    Column[Json]("Tokens out", lambda row: formats.count(row["tokens"]), "number"),
)


def _used(row: Json, field: str) -> str:
    return "–" if row[field] is None else f"{row[field]['used']} of {row[field]['total']}"


def _number(row: Json, field: str, name: str) -> str:
    return "–" if row[field] is None else formats.count(row[field][name])


_ENGINES = (
    Column[Json]("Engine", lambda row: link(str(row["id"]), f"/engine?{urlencode({'engine': row['id']})}"), "break"),
    Column[Json]("State", lambda row: state_chip(row["state"])),
    Column[Json]("Running", lambda row: _number(row, "batch", "running"), "number"),
    Column[Json]("Waiting", lambda row: _number(row, "queue", "waiting"), "number"),
    Column[Json]("Slots", lambda row: _used(row, "adapter_slots"), "number"),
    Column[Json]("KV blocks", lambda row: _used(row, "kv_blocks"), "number"),
    Column[Json]("Address", lambda row: str(row["target"]), "break"),
)


def draw(context: PageContext) -> None:
    """Draw the page, which is updated live."""
    with div("head"):
        heading("Engine", "Its current work, updated every two seconds.")
        with div("actions"):
            words = "The last steps as a trace for Perfetto"
            query = urlencode({"engine": context.query["engine"]}) if "engine" in context.query else ""
            tag("a", "Download a trace", classes="button", href=f"/transfer/trace.json?{query}", title=words)
    _Engine(context).draw()


@dataclass(frozen=True)
class _Shown:
    """All engines, the one whose details are shown, and the counters of tenants."""

    engines: list[Json]
    engine: Json
    counted: list[Json]


class _Engine:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._running: deque[float] = deque(maxlen=_SAMPLES)
        self._waiting: deque[float] = deque(maxlen=_SAMPLES)
        self._tenants = TenantNames(context.api)
        self._wanted = context.query.get("engine")

    def draw(self) -> None:
        AsyncRegion(self._fetch, self._show, every=_EVERY)

    async def _fetch(self) -> "_Shown":
        engines = (await self._context.api.get("/admin/v1/engines"))["data"]
        if not engines:
            raise ApiError("No engine is configured or registered.")
        engine = next((each for each in engines if each["id"] == self._wanted), engines[0])
        counted = _counted(parse(await self._context.api.text("/metrics")))
        await self._tenants.fetch(each["tenant_id"] for each in [*engine["residents"], *counted])
        if engine["batch"] is not None:
            self._running.append(engine["batch"]["running"])
            self._waiting.append(engine["queue"]["waiting"])
        return _Shown(engines, engine, counted)

    def _show(self, shown: "_Shown") -> None:
        engine, counted = shown.engine, shown.counted
        if len(shown.engines) > 1:
            with div("card flush"):
                table("Engines", _ENGINES, shown.engines)
            tag("h2", engine["id"])
        with div("row-of"):
            state_chip(engine["state"])
            for words in (engine["model"], engine["device"], engine["dtype"]):
                if words:
                    tag("span", words, classes="muted break")
        if engine["batch"] is None:
            with (
                div("card"),
                empty(
                    "o_memory",
                    "The engine is not responding",
                    engine["reason"] if engine["state"] == "rejected" else "This page updates when it is back.",
                ),
            ):
                pass
            return
        self._figures(engine)
        with div("grid-2"):
            with div("card"), div("stack"):
                tag("h2", "Running and waiting")
                chart.line("Running and waiting", self._running, max_points=_SAMPLES, second=self._waiting)
                muted("The last two minutes. The second colour is waiting.", "small")
            with div("card"), div("stack"):
                tag("h2", "Memory")
                _capacity("KV cache, blocks", engine["kv_blocks"])
                for tier in ("device", "host", "disk"):
                    _capacity(f"Adapters, {tier}", engine["adapter_bytes"][tier], in_bytes=True)
        _queues(engine["tenants"])
        self._slots(engine)
        self._by_tenant(counted)

    def _figures(self, engine: Json) -> None:
        steps, queue = engine["step_seconds"], engine["queue"]
        with div("grid-figures"):
            figure("Running", formats.count(engine["batch"]["running"]))
            figure("Waiting", formats.count(queue["waiting"]), f"{queue['waiting_for_adapter']} for their adapter")
            figure(
                "Step, median", formats.seconds(steps and steps["p50"]), f"of {steps['steps']} steps" if steps else ""
            )
            figure("Step, p99", formats.seconds(steps and steps["p99"]))
            slots = engine["adapter_slots"]
            figure("Slots in use", f"{slots['used']} of {slots['total']}")

    def _slots(self, engine: Json) -> None:
        residents = {each["slot"]: each for each in engine["residents"]}
        with tag("section", classes="stack"):
            tag("h2", "Slots")
            with tag("ul", classes="slots", aria_label="Adapter slots"):
                for number in range(min(engine["adapter_slots"]["total"], _MAX_SLOTS)):
                    self._slot(number, residents.get(number))

    def _slot(self, number: int, resident: Json | None) -> None:
        if resident is None:
            with tag("li", classes="slot"):
                tag("span", f"Slot {number}", classes="muted")
                tag("span", "free", classes="muted")
            return
        with tag("li", classes="slot busy" if resident["running"] else "slot held"):
            versions = ", ".join(f"{each['name']}:{each['version']}" for each in resident["versions"])
            tag("span", versions or resident["id"])
            tenant = self._tenants.name(resident["tenant_id"])
            facts = [
                tenant,
                f"{resident['running']} running" if resident["running"] else "",
                "pinned" if resident["pinned"] else "",
            ]
            tag("span", " · ".join(fact for fact in facts if fact))

    def _by_tenant(self, counted: list[Json]) -> None:
        with tag("section", classes="stack"):
            tag("h2", "By tenant, since the gateway started")
            with div("card flush"):
                if counted:
                    rows = [{**row, "name": self._tenants.name(row["tenant_id"])} for row in counted]
                    table("By tenant", _TENANTS, rows, itemgetter("tenant_id"))
                else:
                    with empty("o_group", "No requests yet", "Tenants appear here with their first request."):
                        pass


def _counted(page: Exposition) -> list[Json]:
    """Return the counters of the busiest tenants, without those that are summed up as other."""
    sums = {field: page.by("tenant", f"loragate_tenant_{name}_total") for field, name in _COUNTED.items()}
    busiest = sorted(sums["requests"].keys() - {_OTHERS}, key=lambda each: -sums["requests"][each])[:_MAX_TENANTS]
    return [
        {"tenant_id": tenant} | {field: of_tenants.get(tenant, 0.0) for field, of_tenants in sums.items()}
        for tenant in busiest
    ]


def _queues(tenants: list[Json]) -> None:
    with tag("section", classes="stack"):
        tag("h2", "Queues")
        with div("card"), div("stack"):
            if not tenants:
                muted("There are no requests at the moment.")
                return
            rows = [Queue(row["name"] or row["tenant_id"], row["running"], row["waiting"]) for row in tenants]
            queues("Queue by tenant", rows[:_MAX_QUEUES])
            if len(rows) > _MAX_QUEUES:
                rest = rows[_MAX_QUEUES:]
                running, waiting = sum(row.running for row in rest), sum(row.waiting for row in rest)
                muted(Queue(f"{len(rest)} more tenants", running, waiting).description, "small")


def _capacity(name: str, capacity: Json, *, in_bytes: bool = False) -> None:
    used, total = capacity["used"], capacity["total"]
    share = used / total if total else 0.0
    written = formats.size if in_bytes else formats.count
    with div("stack tight"):
        with div("row-of apart"):
            tag("span", name)
            tag("span", f"{written(used)} of {written(total)}", classes="muted small number")
        with div("meter warn" if share > 0.9 else "meter", role="img", aria_label=f"{name}: {share:.0%} used"):
            div().style(f"width: {share:.1%}")
