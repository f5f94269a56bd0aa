"""The list of a tenant's stored responses, without their contents."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.dialog import confirm
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify

_CANCELLABLE = ("queued", "in_progress")


def draw(context: PageContext) -> None:
    """Draw the list, which is updated every few seconds."""
    _Responses(context).draw()


class _Responses:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading("Responses", "Stored responses. Their contents are not shown here.")
        self._list = Listing(self._fetch, self._show, _nothing, every=3)

    async def _fetch(self, after: str | None) -> Json:
        return await self._context.api.get("/v1/responses", after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Response", _name, "break"),
            Column[Json]("State", lambda row: state_chip(row["status"])),
            Column[Json]("Size", lambda row: formats.size(row["bytes"]), "number"),
            Column[Json]("Created", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Responses", columns, page["data"])

    def _acts(self, row: Json) -> None:
        with div("row-of"):
            if row["status"] in _CANCELLABLE:
                button("Cancel", lambda: self._cancel(row["id"]), "small", label=f"Cancel {row['id']}")
            button("Delete", lambda: self._ask(row["id"]), "small danger", label=f"Delete {row['id']}")

    async def _cancel(self, response: str) -> None:
        work = self._context.api.post(path("v1", "responses", response, "cancel"))
        if await run_and_notify(work, "The response is cancelled."):
            await self._list.load()

    def _ask(self, response: str) -> None:
        async def go() -> None:
            work = self._context.api.delete(path("v1", "responses", response))
            if await run_and_notify(work, "The response is deleted."):
                await self._list.load()

        words = "Its input, its output and what it added to a conversation go. This cannot be undone."
        confirm(f"Delete {response}?", words, "Delete", go)


def _name(row: Json) -> None:
    with div("stack tight"):
        tag("span", row["id"], classes="break")
        tag("span", row["model"], classes="muted small break")


def _nothing() -> None:
    words = "Where the server stores responses, those of requests with “store” appear here."
    with empty("o_forum", "No stored responses", words):
        return
