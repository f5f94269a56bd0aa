"""The engine, for the operator: batch, memory, who sits in which slot, and how long steps take."""

from collections import deque
from operator import itemgetter

from loragate.panel.api import Json
from loragate.panel.exposition import Exposition, parse
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.display.queues import Queue, queues
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.tenant_names import TenantNames

_EVERY = 2.0
_KEPT = 60
_MOST_SLOTS = 256
_MOST_QUEUES = 20
_MOST_COUNTED = 50
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
    Column[Json]("Over a limit", lambda row: formats.count(row["rejected"]), "number"),
    Column[Json]("Shed", lambda row: formats.count(row["shed"]), "number"),
    Column[Json]("Tokens out", lambda row: formats.count(row["tokens"]), "number"),
)


def draw(here: Here) -> None:
    """Live."""
    with div("head"):
        heading("Engine", "What it serves and does, every two seconds.")
        with div("actions"):
            words = "The last steps as a trace, to open in Perfetto"
            tag("a", "Download a trace", classes="button", href="/transfer/trace.json", title=words)
    _Engine(here).draw()


class _Engine:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._running: deque[float] = deque(maxlen=_KEPT)
        self._waiting: deque[float] = deque(maxlen=_KEPT)
        self._tenants = TenantNames(here.api)

    def draw(self) -> None:
        Region(self._fetch, self._show, every=_EVERY)

    async def _fetch(self) -> tuple[Json, list[Json]]:
        (engine,) = (await self._here.api.get("/admin/v1/engines"))["data"]
        counted = _counted(parse(await self._here.api.text("/metrics")))
        await self._tenants.learn(each["tenant_id"] for each in [*engine["residents"], *counted])
        if engine["batch"] is not None:
            self._running.append(engine["batch"]["running"])
            self._waiting.append(engine["queue"]["waiting"])
        return engine, counted

    def _show(self, found: tuple[Json, list[Json]]) -> None:
        engine, counted = found
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
                    "The engine does not answer",
                    "It is started again by itself; this page goes on looking.",
                ),
            ):
                pass
            return
        self._figures(engine)
        with div("grid-2"):
            with div("card"), div("stack"):
                tag("h2", "In the batch, and waiting")
                chart.line("In the batch, and waiting", self._running, most=_KEPT, second=self._waiting)
                muted("The last two minutes; waiting in the second colour.", "small")
            with div("card"), div("stack"):
                tag("h2", "Memory")
                _room("KV cache, blocks", engine["kv_blocks"])
                for tier in ("device", "host", "disk"):
                    _room(f"Adapters, {tier}", engine["adapter_bytes"][tier], in_bytes=True)
        _queues(engine["tenants"])
        self._slots(engine)
        self._of_tenants(counted)

    def _figures(self, engine: Json) -> None:
        steps, queue = engine["step_seconds"], engine["queue"]
        with div("grid-figures"):
            figure("In the batch", formats.count(engine["batch"]["running"]))
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
            tag("h2", "Who sits where")
            with tag("ul", classes="slots", aria_label="Adapter slots"):
                for number in range(min(engine["adapter_slots"]["total"], _MOST_SLOTS)):
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

    def _of_tenants(self, counted: list[Json]) -> None:
        with tag("section", classes="stack"):
            tag("h2", "By tenant, since the gateway's start")
            with div("card flush"):
                if counted:
                    rows = [{**row, "name": self._tenants.name(row["tenant_id"])} for row in counted]
                    table("By tenant", _TENANTS, rows, itemgetter("tenant_id"))
                else:
                    with empty("o_group", "No requests yet", "Tenants appear here with their first request."):
                        pass


def _counted(page: Exposition) -> list[Json]:
    """What each of the busiest tenants did, those that are counted one by one."""
    sums = {field: page.by("tenant", f"loragate_tenant_{name}_total") for field, name in _COUNTED.items()}
    busiest = sorted(sums["requests"].keys() - {_OTHERS}, key=lambda each: -sums["requests"][each])[:_MOST_COUNTED]
    return [
        {"tenant_id": tenant} | {field: of_tenants.get(tenant, 0.0) for field, of_tenants in sums.items()}
        for tenant in busiest
    ]


def _queues(tenants: list[Json]) -> None:
    with tag("section", classes="stack"):
        tag("h2", "Who waits")
        with div("card"), div("stack"):
            if not tenants:
                muted("Nobody asks anything at the moment.")
                return
            rows = [Queue(row["name"] or row["tenant_id"], row["running"], row["waiting"]) for row in tenants]
            queues("Queue by tenant", rows[:_MOST_QUEUES])
            if len(rows) > _MOST_QUEUES:
                rest = rows[_MOST_QUEUES:]
                running, waiting = sum(row.running for row in rest), sum(row.waiting for row in rest)
                muted(Queue(f"{len(rest)} more tenants", running, waiting).told, "small")


def _room(name: str, room: Json, *, in_bytes: bool = False) -> None:
    used, total = room["used"], room["total"]
    share = used / total if total else 0.0
    written = formats.size if in_bytes else formats.count
    with div("stack tight"):
        with div("row-of apart"):
            tag("span", name)
            tag("span", f"{written(used)} of {written(total)}", classes="muted small number")
        with div("meter warn" if share > 0.9 else "meter", role="img", aria_label=f"{name}: {share:.0%} used"):
            div().style(f"width: {share:.1%}")
