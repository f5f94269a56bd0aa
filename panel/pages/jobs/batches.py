"""The list of batches with their progress: a tenant's own with their results, or all of them for the operator."""

from loragate.panel.api import Json, path
from loragate.panel.pages.jobs.batch_creation import batch_dialog
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify
from loragate.panel.tenant_names import TenantNames

_CANCELLABLE = ("validating", "in_progress")
_MAX_PROBLEMS = 3
_STATES = {
    "": "All states",
    "validating": "Validating",
    "in_progress": "In progress",
    "finalizing": "Finalizing",
    "cancelling": "Cancelling",
    "completed": "Completed",
    "cancelled": "Cancelled",
    "expired": "Expired",
    "failed": "Failed",
}


def draw(context: PageContext) -> None:
    """Draw the list, which is updated every few seconds."""
    _Batches(context).draw()


class _Batches:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._all = context.caller.is_operator
        self._tenants = TenantNames(context.api)
        self._status = ""
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            words = "The batches of all tenants." if self._all else "Files of requests that are run when there is time."
            heading("Batches", words)
            if not self._all:
                with div("actions"):
                    button("New batch", self._make, "primary")
        with div("stack"):
            if self._all:
                with div("tools", role="search"):
                    state = choice_field("State", _STATES, "")
                state.on_value_change(lambda event: self._narrow(event.value))
            self._list = Listing(self._fetch, self._show, self._nothing, every=3)

    async def _narrow(self, status: str) -> None:
        self._status = status
        await self._list.restart()

    def _make(self) -> None:
        batch_dialog(self._context, self._list.restart)

    def _nothing(self) -> None:
        if self._all:
            words = "No batch is in this state." if self._status else "No tenant has created a batch."
            with empty("o_dynamic_feed", "Nothing found" if self._status else "No batches yet", words):
                return
        words = "A batch is a file of requests, one JSON object per line, that are run at a lower price."
        with empty("o_dynamic_feed", "No batches yet", words):
            button("Create a batch", self._make, "primary")

    async def _fetch(self, after: str | None) -> Json:
        if not self._all:
            return await self._context.api.get("/v1/batches", after=after, limit=ROWS)
        page = await self._context.api.get("/admin/v1/batches", status=self._status or None, after=after, limit=ROWS)
        await self._tenants.fetch(row["tenant_id"] for row in page["data"])
        return page

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Batch", _name, "break"),
            Column[Json]("State", lambda row: state_chip(row["status"])),
            Column[Json]("Progress", _progress),
            Column[Json]("Tokens", lambda row: formats.count(row["usage"]["total_tokens"]), "number"),
            Column[Json]("Created", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        if self._all:
            columns.insert(1, Column[Json]("Tenant", lambda row: self._tenants.name(row["tenant_id"]), "break"))
        table("Batches", columns, page["data"])

    def _acts(self, row: Json) -> None:
        with div("row-of"):
            for kind, words in (("output", "Results"), ("error", "Errors")):
                if (file_id := row.get(f"{kind}_file_id")) is not None:  # operators see no files
                    place = path("transfer", "files", file_id, f"{row['id']}_{kind}.jsonl")
                    tag("a", words, classes="button small quiet", href=place, aria_label=f"{words} of {row['id']}")
            if row["status"] in _CANCELLABLE:
                button("Cancel", lambda: self._cancel(row["id"]), "small danger", label=f"Cancel {row['id']}")

    async def _cancel(self, batch: str) -> None:
        place = ("admin", "v1") if self._all else ("v1",)
        work = self._context.api.post(path(*place, "batches", batch, "cancel"))
        if await run_and_notify(work, "The batch is being cancelled."):
            await self._list.load()


def _name(row: Json) -> None:
    with div("stack tight"):
        tag("span", row["id"], classes="break")
        tag("span", row["endpoint"], classes="muted small break")
        for problem in (row["errors"] or {"data": []})["data"][:_MAX_PROBLEMS]:
            place = "" if problem["line"] is None else f"Line {problem['line']}: "
            tag("span", f"{place}{problem['message']}", classes="small break")


def _progress(row: Json) -> None:
    counts = row["request_counts"]
    done, total = counts["completed"] + counts["failed"], counts["total"]
    share = done / total if total else 0.0
    failed = f", {formats.count(counts['failed'])} failed" if counts["failed"] else ""
    with div("stack tight"):
        tag("span", f"{formats.count(done)} of {formats.count(total)} lines{failed}", classes="nowrap")
        with div("meter", role="img", aria_label=f"{share:.0%} done"):
            div().style(f"width: {share:.1%}")
        if row["waits_for"]:
            muted(row["waits_for"], "small")
        elif row["status"] in _CANCELLABLE and not row.get("held", True):
            muted("Waits for a gateway", "small")
