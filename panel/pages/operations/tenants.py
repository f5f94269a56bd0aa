"""Tenants, for the operator."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import number_field, text_field
from loragate.panel.parts.dialog import sheet
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, link
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import attempt

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
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading("Tenants and limits", "Each sees its own adapters, keys and usage, and nothing of the others.")
            with div("actions"):
                button("New tenant", self._make, "primary")
        self._list = Listing(self._fetch, _show, self._nothing)

    async def _fetch(self, after: str | None) -> Json:
        return await self._here.api.get("/admin/v1/tenants", after=after, limit=ROWS)

    def _nothing(self) -> None:
        with empty("o_group", "No tenants yet", "Make one, then a key for it: with that it uploads and asks."):
            button("Make the first one", self._make, "primary")

    def _make(self) -> None:
        async def save() -> None:
            body = {"name": name.value or "", "weight": float(weight.value or 1)}
            if await attempt(self._here.api.post("/admin/v1/tenants", body), f"{name.value} is there."):
                dialog.close()
                await self._list.load()

        with sheet("A new tenant") as dialog:
            name = text_field("Name")
            weight = number_field("Weight", 1, least=0.01, step=0.5)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Make it", save, "primary")


def _show(page: Json) -> None:
    table("Tenants", _COLUMNS, page["data"])


def _linked(row: Json) -> None:
    link(row["name"], path("tenants", row["id"]))
