"""Files of a tenant's: examples to train with, and what jobs left."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.dialog import confirm
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, muted, tag
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import attempt

_PURPOSES = {"fine-tune": "examples", "fine-tune-results": "a job's metrics", "adapter": "part of an adapter"}


def draw_files(here: Here) -> None:
    """A list under the jobs."""
    _Files(here).draw()


class _Files:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._list: Listing

    def draw(self) -> None:
        with tag("section", classes="stack", aria_label="Files").style("margin-top: var(--s6)"):
            tag("h2", "Files")
            self._list = Listing(self._fetch, self._show, _nothing, every=15)

    async def _fetch(self, after: str | None) -> Json:
        return await self._here.api.get("/v1/files", after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Name", lambda row: str(row["filename"]), "break"),
            Column[Json]("What it is", lambda row: _PURPOSES.get(row["purpose"], row["purpose"])),
            Column[Json]("Size", lambda row: formats.size(row["bytes"]), "number"),
            Column[Json]("Made", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
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
            if await attempt(self._here.api.delete(path("v1", "files", row["id"])), "It is deleted."):
                await self._list.load()

        words = "Jobs that have not read it yet will fail. This cannot be undone."
        confirm(f"Delete {row['filename']}?", words, "Delete", go)


def _nothing() -> None:
    with div("empty"):
        muted("Files of examples stay here, for further jobs.")
