"""A tenant's files: training examples and jobs' results."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.dialog import confirm
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify

_PURPOSES = {
    "fine-tune": "examples",
    "fine-tune-results": "job metrics",
    "adapter": "part of an adapter",
    "batch": "requests of a batch",
    "batch_output": "results of a batch",
}


def draw_files(context: PageContext) -> None:
    """Draw the list of files below the jobs."""
    _Files(context).draw()


class _Files:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._list: Listing

    def draw(self) -> None:
        with tag("section", classes="stack", aria_label="Files").style("margin-top: var(--s6)"):
            tag("h2", "Files")
            self._list = Listing(self._fetch, self._show, _nothing, every=15)

    async def _fetch(self, after: str | None) -> Json:
        return await self._context.api.get("/v1/files", after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Name", lambda row: str(row["filename"]), "break"),
            Column[Json]("Content", lambda row: _PURPOSES.get(row["purpose"], row["purpose"])),
            Column[Json]("Size", lambda row: formats.size(row["bytes"]), "number"),
            Column[Json]("Created", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Files", columns, page["data"])

    def _acts(self, row: Json) -> None:
        name = row["filename"]
        with div("row-of"):
            place = path("transfer", "files", row["id"], name)
            tag("a", "Download", classes="button small quiet", href=place, aria_label=f"Download {name}")
            button("Delete", lambda: self._delete(row), "small quiet danger", label=f"Delete {name}")

    def _delete(self, row: Json) -> None:
        async def go() -> None:
            if await run_and_notify(self._context.api.delete(path("v1", "files", row["id"])), "The file was deleted."):
                await self._list.load()

        words = "Jobs that have not read it yet will fail. This cannot be undone."
        confirm(f"Delete {row['filename']}?", words, "Delete", go)


def _nothing() -> None:
    with div("empty"):
        muted("Uploaded files are listed here and can be used by further jobs.")
