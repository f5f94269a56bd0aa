"""Adapters that the server fetches from elsewhere."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import text_field
from loragate.panel.parts.dialog import sheet
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, muted, tag
from loragate.panel.parts.notify import attempt

_SHOWN = 5
_STOPPABLE = ("queued", "fetching")


class Imports:
    """The latest, where there are any."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._region: Region[list[Json]]

    def draw(self) -> None:
        self._region = Region(self._fetch, self._show, every=5)

    def begin(self) -> None:
        """Asks what to fetch."""

        async def save() -> None:
            given = {"source": source, "name": name, "alias": alias, "token": token}
            texts = {field: (element.value or "").strip() for field, element in given.items()}
            body = {field: text for field, text in texts.items() if text}
            if await attempt(self._here.api.post("/v1/imports", body), "It is being fetched."):
                dialog.close()
                await self._region.load()

        with sheet("Import an adapter") as dialog:
            muted("The server fetches it, and checks it as if it had been uploaded.")
            source = text_field("Source", hint="hf://organisation/name@commit, or s3://bucket/folder")
            name = text_field("Name", hint="What requests call it: letters, digits, dots, dashes")
            alias = text_field("Alias", "default")
            token = text_field("Token", hint="For what is not public; used once, and not kept").props("type=password")
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Import it", save, "primary")

    async def _fetch(self) -> list[Json]:
        found: list[Json] = (await self._here.api.get("/v1/imports", limit=_SHOWN))["data"]
        return found

    def _show(self, imports: list[Json]) -> None:
        if not imports:
            return
        columns = [
            Column[Json]("Name", lambda row: str(row["name"]), "break"),
            Column[Json]("From", lambda row: str(row["source"]), "break"),
            Column[Json]("State", _state),
            Column[Json]("Fetched", _fetched, "number"),
            Column[Json]("Begun", lambda row: formats.ago(row["created_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        with tag("section", classes="stack"):
            tag("h2", "The latest imports")
            with div("card flush"):
                table("The latest imports", columns, imports)

    def _acts(self, row: Json) -> None:
        async def cancel() -> None:
            if await attempt(self._here.api.delete(path("v1", "imports", row["id"])), "It is cancelled."):
                await self._region.load()

        with div("row-of"):
            if row["status"] in _STOPPABLE and self._here.caller.may("adapters:write"):
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
