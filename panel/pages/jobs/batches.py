"""The list of a tenant's batches, with their progress and their results."""

from loragate.panel.api import Json, path
from loragate.panel.pages.jobs.batch_creation import batch_dialog
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify

_CANCELLABLE = ("validating", "in_progress")
_MAX_PROBLEMS = 3


def draw(context: PageContext) -> None:
    """Draw the list, which is updated every few seconds."""
    _Batches(context).draw()


class _Batches:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading("Batches", "Files of requests that are run when there is time.")
            with div("actions"):
                button("New batch", self._make, "primary")
        self._list = Listing(self._fetch, self._show, self._nothing, every=3)

    def _make(self) -> None:
        batch_dialog(self._context, self._list.restart)

    def _nothing(self) -> None:
        words = "A batch is a file of requests, one JSON object per line, that are run at a lower price."
        with empty("o_dynamic_feed", "No batches yet", words):
            button("Create a batch", self._make, "primary")

    async def _fetch(self, after: str | None) -> Json:
        return await self._context.api.get("/v1/batches", after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Batch", _name, "break"),
            Column[Json]("State", lambda row: state_chip(row["status"])),
            Column[Json]("Progress", _progress),
            Column[Json]("Created", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Batches", columns, page["data"])

    def _acts(self, row: Json) -> None:
        with div("row-of"):
            for kind, words in (("output", "Results"), ("error", "Errors")):
                if (file_id := row[f"{kind}_file_id"]) is not None:
                    place = path("transfer", "files", file_id, f"{row['id']}_{kind}.jsonl")
                    tag("a", words, classes="button small quiet", href=place, aria_label=f"{words} of {row['id']}")
            if row["status"] in _CANCELLABLE:
                button("Cancel", lambda: self._cancel(row["id"]), "small danger", label=f"Cancel {row['id']}")

    async def _cancel(self, batch: str) -> None:
        work = self._context.api.post(path("v1", "batches", batch, "cancel"))
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
