"""The list of tenants, for the operator."""

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import number_field, text_field
from loragate.panel.parts.elements.tag import div, link
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify

_COLUMNS = (
    Column[Json]("Name", lambda row: _linked(row), "break"),
    Column[Json]("Weight", lambda row: f"{row['weight']:g}", "number"),
    Column[Json]("Requests per minute", lambda row: formats.limit(row["limits"]["requests_per_minute"]), "number"),
    Column[Json]("Tokens per minute", lambda row: formats.limit(row["limits"]["tokens_per_minute"]), "number"),
    Column[Json]("Concurrent", lambda row: formats.limit(row["limits"]["max_concurrency"]), "number"),
    Column[Json]("Created", lambda row: formats.ago(row["created_at"]), "nowrap"),
)


def draw(context: PageContext) -> None:
    """Draw the list."""
    _Tenants(context).draw()


class _Tenants:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading("Tenants and limits", "Each tenant sees only its own adapters, keys and usage.")
            with div("actions"):
                button("New tenant", self._make, "primary")
        self._list = Listing(self._fetch, _show, self._nothing)

    async def _fetch(self, after: str | None) -> Json:
        return await self._context.api.get("/admin/v1/tenants", after=after, limit=ROWS)

    def _nothing(self) -> None:
        with empty(
            "o_group",
            "No tenants yet",
            "Create a tenant, then a key, with which it can upload adapters and send requests.",
        ):
            button("Create a tenant", self._make, "primary")

    def _make(self) -> None:
        async def save() -> None:
            body = {"name": name.value or "", "weight": float(weight.value or 1)}
            if await run_and_notify(self._context.api.post("/admin/v1/tenants", body), f"{name.value} was created."):
                dialog.close()
                await self._list.load()

        with open_dialog("New tenant") as dialog:
            name = text_field("Name")
            weight = number_field("Weight", 1, minimum=0.01, step=0.5)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Create", save, "primary")


def _show(page: Json) -> None:
    table("Tenants", _COLUMNS, page["data"])


def _linked(row: Json) -> None:
    link(row["name"], path("tenants", row["id"]))
