"""The list of fine-tuning jobs: a tenant's own, or all of them for the operator."""

from loragate.panel.api import Json, path
from loragate.panel.pages.jobs.creation import creation_dialog
from loragate.panel.pages.jobs.files import draw_files
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify
from loragate.panel.tenant_names import TenantNames

ENDED = ("succeeded", "failed", "cancelled")
_STATES = {
    "": "All states",
    "validating_files": "Validating files",
    "queued": "Queued",
    "running": "Running",
    "paused": "Paused",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
}


def draw(context: PageContext) -> None:
    """Draw the list."""
    if context.caller.is_operator or context.caller.may("finetune"):
        _Jobs(context).draw()
        return
    with div("head"):
        heading("Fine-tuning")
    with div("card"), empty("o_lock", "No access", "This page needs a key with the scope “finetune”."):
        muted("Ask the administrator of your tenant's keys for one.")


class _Jobs:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._all = context.caller.is_operator
        self._tenants = TenantNames(context.api)
        self._status = ""
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            words = "The jobs of all tenants." if self._all else "Train an adapter of your own from a file of examples."
            heading("Fine-tuning", words)
            if not self._all:
                with div("actions"):
                    button("New job", self._make, "primary")
        with div("stack"):
            if self._all:
                with div("tools", role="search"):
                    state = choice_field("State", _STATES, "")
                state.on_value_change(lambda event: self._narrow(event.value))
            self._list = Listing(self._fetch, self._show, self._nothing, every=5)
        if not self._all:
            draw_files(self._context)

    async def _narrow(self, status: str) -> None:
        self._status = status
        await self._list.restart()

    def _make(self) -> None:
        creation_dialog(self._context)

    async def _fetch(self, after: str | None) -> Json:
        if not self._all:
            return await self._context.api.get("/v1/fine_tuning/jobs", after=after, limit=ROWS)
        page = await self._context.api.get("/admin/v1/jobs", status=self._status or None, after=after, limit=ROWS)
        await self._tenants.fetch(row["tenant_id"] for row in page["data"])
        return page

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Job", self._name, "break"),
            Column[Json]("State", lambda row: state_chip(row["status"])),
            Column[Json]("Starts from", lambda row: str(row["model"]), "break"),
            Column[Json]("Steps", progress_words, "number"),
            Column[Json]("Created", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
        ]
        if self._all:
            columns.insert(1, Column[Json]("Tenant", lambda row: self._tenants.name(row["tenant_id"]), "break"))
            columns.append(Column[Json]("", self._acts, "end"))
        table("Fine-tuning jobs", columns, page["data"])

    def _nothing(self) -> None:
        if self._status:
            with empty("o_search_off", "Nothing found", "No job is in this state."):
                return
        words = "Ten examples of questions and good answers are enough to start, one JSON object per line."
        with empty("o_school", "No jobs yet", "No tenant has created a job." if self._all else words):
            if not self._all:
                button("Create a job", self._make, "primary")

    def _name(self, row: Json) -> None:
        with div("stack tight"):
            link(row["id"], path("fine-tuning", row["id"]), "break")
            if row["fine_tuned_model"]:
                tag("span", row["fine_tuned_model"], classes="muted small break")

    def _acts(self, row: Json) -> None:
        with div("row-of"):
            if row["status"] in ENDED:
                return
            act, words = ("resume", "The job continues.") if row["status"] == "paused" else ("pause", "The job pauses.")
            self._act(row["id"], act, words, "small")
            self._act(row["id"], "cancel", "The job is being cancelled.", "small danger")

    def _act(self, job: str, act: str, words: str, kind: str) -> None:
        async def order() -> None:
            if await run_and_notify(self._context.api.post(path("admin", "v1", "jobs", job, act)), words):
                await self._list.load()

        button(act.capitalize(), order, kind, label=f"{act.capitalize()} {job}")


def progress_words(job: Json) -> str:
    """Return the finished steps and all steps, such as "3 of 10"."""
    done = job["progress"]
    return "–" if done is None else f"{done['step']} of {done['total_steps'] or '?'}"
