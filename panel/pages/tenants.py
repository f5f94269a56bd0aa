"""Tenants, for the operator."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts import formats
from loragate.panel.parts.button import button
from loragate.panel.parts.empty import empty
from loragate.panel.parts.fields import number_field, text_field
from loragate.panel.parts.frame import heading
from loragate.panel.parts.pager import Cursor, pager
from loragate.panel.parts.region import Region
from loragate.panel.parts.say import attempt
from loragate.panel.parts.sheet import sheet
from loragate.panel.parts.table import Column, table
from loragate.panel.parts.tag import div, link

_COLUMNS = (
    Column[Json]("Name", lambda row: _linked(row), "break"),
    Column[Json]("Weight", lambda row: f"{row['weight']:g}", "number"),
    Column[Json]("Requests a minute", lambda row: formats.limit(row["limits"]["requests_per_minute"]), "number"),
    Column[Json]("Tokens a minute", lambda row: formats.limit(row["limits"]["tokens_per_minute"]), "number"),
    Column[Json]("At once", lambda row: formats.limit(row["limits"]["max_concurrency"]), "number"),
    Column[Json]("Made", lambda row: formats.ago(row["created_at"]), "nowrap"),
)


def draw(here: Here) -> None:
    """The list."""
    _Tenants(here).draw()


class _Tenants:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._cursor = Cursor()
        self._region: Region[Json]

    def draw(self) -> None:
        with div("head"):
            heading("Tenants and limits", "Each sees its own adapters, keys and usage, and nothing of the others.")
            with div("actions"):
                button("New tenant", self._make, "primary")
        self._region = Region(self._fetch, self._show)

    async def _fetch(self) -> Json:
        return await self._here.api.get("/admin/v1/tenants", after=self._cursor.after, limit=50)

    def _show(self, page: Json) -> None:
        with div("card flush"):
            if not page["data"]:
                with empty("o_group", "No tenants yet", "Make one, then a key for it: with that it uploads and asks."):
                    button("Make the first one", self._make, "primary")
                return
            table("Tenants", _COLUMNS, page["data"])
            pager(self._cursor, page["last_id"], page["has_more"], self._region.load)

    def _make(self) -> None:
        async def save() -> None:
            body = {"name": name.value or "", "weight": float(weight.value or 1)}
            if await attempt(self._here.api.post("/admin/v1/tenants", body), f"{name.value} is there."):
                dialog.close()
                await self._region.load()

        with sheet("A new tenant") as dialog:
            name = text_field("Name")
            weight = number_field("Weight", 1, least=0.01, step=0.5)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Make it", save, "primary")


def _linked(row: Json) -> None:
    link(row["name"], path("tenants", row["id"]))
