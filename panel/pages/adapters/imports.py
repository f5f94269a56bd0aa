"""Imports: adapters that the server fetches from a hub or bucket."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import text_field
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.notify import run_and_notify

_SHOWN = 5
_STOPPABLE = ("queued", "fetching")


class Imports:
    """The latest imports, and the dialog that starts one."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._region: AsyncRegion[list[Json]]

    def draw(self) -> None:
        self._region = AsyncRegion(self._fetch, self._show, every=5)

    def begin(self) -> None:
        """Open the dialog."""

        async def save() -> None:
            given = {"source": source, "name": name, "alias": alias, "token": token}
            texts = {field: (element.value or "").strip() for field, element in given.items()}
            body = {field: text for field, text in texts.items() if text}
            if await run_and_notify(self._context.api.post("/v1/imports", body), "The import has started."):
                dialog.close()
                await self._region.load()

        with open_dialog("Import an adapter") as dialog:
            muted("The server fetches the adapter and checks it like an upload.")
            source = text_field("Source", hint="hf://organization/name@commit, or s3://bucket/folder")
            name = text_field("Name", hint="The name in requests: letters, digits, dots and dashes")
            alias = text_field("Alias", "default")
            token = text_field("Token", hint="For private repositories; used once and not stored").props(
                "type=password"
            )
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Import", save, "primary")

    async def _fetch(self) -> list[Json]:
        found: list[Json] = (await self._context.api.get("/v1/imports", limit=_SHOWN))["data"]
        return found

    def _show(self, imports: list[Json]) -> None:
        if not imports:
            return
        columns = [
            Column[Json]("Name", lambda row: str(row["name"]), "break"),
            Column[Json]("Source", lambda row: str(row["source"]), "break"),
            Column[Json]("State", _state),
            Column[Json]("Fetched", _fetched, "number"),
            Column[Json]("Started", lambda row: formats.ago(row["created_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        with tag("section", classes="stack"):
            tag("h2", "Latest imports")
            with div("card flush"):
                table("Latest imports", columns, imports)

    def _acts(self, row: Json) -> None:
        async def cancel() -> None:
            if await run_and_notify(
                self._context.api.delete(path("v1", "imports", row["id"])), "The import was cancelled."
            ):
                await self._region.load()

        with div("row-of"):
            if row["status"] in _STOPPABLE and self._context.caller.may("adapters:write"):
                button("Cancel", cancel, "small quiet danger", label=f"Cancel the import of {row['name']}")


def _state(row: Json) -> None:
    with div("stack tight"):
        with div("row-of"):
            state_chip(row["status"])
        if row["error"]:
            tag("span", row["error"]["message"], classes="small muted break")


def _fetched(row: Json) -> str:
    done = formats.size(row["bytes_done"])
    return done if row["bytes_total"] is None else f"{done} of {formats.size(row['bytes_total'])}"
