"""The runs of the training API: their progress and losses; an operator pauses and ends them."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.dialog import confirm, open_dialog
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify

_ENDS = "Its weights and the moments of its optimizer go; its checkpoints and versions of adapters stay."


def draw(context: PageContext) -> None:
    """Draw the list, which is updated every few seconds."""
    if context.caller.is_operator or context.caller.may("train"):
        _Runs(context).draw()
        return
    with div("head"):
        heading("Training")
    with div("card"), empty("o_lock", "No access", "This page needs a key with the scope “train”."):
        muted("Ask the administrator of your tenant's keys for one.")


class _Runs:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._all = context.caller.is_operator
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            words = "The runs of all tenants." if self._all else "Runs of the training API, from a loop of your own."
            heading("Training", words)
        self._list = Listing(self._fetch, self._show, _nothing, every=3)

    async def _fetch(self, after: str | None) -> Json:
        place = "/admin/v1/training_runs" if self._all else "/v1/training_runs"
        return await self._context.api.get(place, after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Run", _name, "break"),
            Column[Json]("State", lambda row: state_chip(_state(row))),
            Column[Json]("Rank", lambda row: formats.count(row["rank"]), "number"),
            Column[Json]("Steps", lambda row: formats.count(row["steps"]), "number"),
            Column[Json]("Tokens", lambda row: formats.count(row["trained_tokens"]), "number"),
            Column[Json]("Last request", lambda row: formats.ago(row["used_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Training runs", columns, page["data"])

    def _acts(self, row: Json) -> None:
        run = row["id"]
        with div("row-of"):
            if not self._all:
                button("Losses", lambda: self._losses(run), "small", label=f"Losses of {run}")
                return
            if row["status"] == "active":
                button("Pause", lambda: self._order(run, "pause", "The run is paused."), "small", label=f"Pause {run}")
            if row["status"] == "paused":
                button("Resume", lambda: self._order(run, "resume", "The run goes on."), "small", label=f"Resume {run}")
            if row["status"] in ("active", "paused"):
                button("End", lambda: self._end(run), "small danger", label=f"End {run}")

    async def _losses(self, run: str) -> None:
        found = await self._context.api.get(path("v1", "training_runs", run))
        losses = [(each["seq"], each["loss"] / max(1, each["tokens"])) for each in found["losses"]]
        with open_dialog("Losses") as dialog:
            muted("Of each request, by token. For policy gradients it says little: watch the rewards in your program.")
            if losses:
                chart.curve("Loss by request", losses)
                tag("p", f"Last: {losses[-1][1]:.4f}")
            else:
                tag("p", "No request has been computed yet.")
            button("Close", dialog.close)

    async def _order(self, run: str, act: str, words: str) -> None:
        if await run_and_notify(self._context.api.post(path("admin", "v1", "training_runs", run, act)), words):
            await self._list.load()

    def _end(self, run: str) -> None:
        confirm("End the run?", _ENDS, "End the run", lambda: self._order(run, "end", "The run has ended."))


def _name(row: Json) -> None:
    with div("stack tight"):
        tag("span", row["id"], classes="break")
        if "tenant_id" in row:
            muted(row["tenant_id"], "small break")


def _state(row: Json) -> str:
    return "running" if row["status"] == "active" and row["loaded"] else str(row["status"])


def _nothing() -> None:
    words = "Start one with the Tinker SDK; the documentation's page on the training API has a program to copy."
    with empty("o_model_training", "No training runs yet", words):
        return
