"""The list of adapters: a tenant's own, or all of them for the operator."""

from dataclasses import dataclass, field
from typing import Any

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.adapters.imports import Imports
from loragate.panel.pages.adapters.upload import upload_dialog
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field, text_field
from loragate.panel.parts.elements.tag import div, link, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import run_and_notify
from loragate.panel.tenant_names import TenantNames

_STATES = {"": "All states", "ready": "Ready", "disabled": "Disabled", "deleted": "Deleted"}
_PLACEMENTS = {"": "automatic", "pinned": "pinned to the device", "prefetched": "prefetched to disk"}


@dataclass
class _Filter:
    """The filter of the list."""

    search: str = ""
    status: str = ""
    tags: list[str] = field(default_factory=list)

    @property
    def is_set(self) -> bool:
        return bool(self.search or self.status or self.tags)

    def params(self) -> dict[str, Any]:
        return {"search": self.search or None, "status": self.status or None, "tag": self.tags or None}


def draw(context: PageContext) -> None:
    """Draw the list and its filter."""
    _Adapters(context).draw()


class _Adapters:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._filter = _Filter(search=context.query.get("search", ""))
        self._tenants = TenantNames(context.api)
        self._imports = Imports(context)
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading(
                "Adapters",
                "The adapters of all tenants."
                if self._all
                else "Each adapter is a model of its own on top of the base model.",
            )
            if not self._all and self._context.caller.may("adapters:write"):
                with div("actions"):
                    button("Import", self._imports.begin, label="Import an adapter from a hub or bucket")
                    button("Upload an adapter", self._upload, "primary")
        with div("stack"):
            self._tools()
            self._list = Listing(self._fetch, self._show, self._nothing, every=15)
            if not self._all and self._context.caller.may("adapters:read"):
                self._imports.draw()

    @property
    def _all(self) -> bool:
        return self._context.caller.is_operator

    def _tools(self) -> None:
        with div("tools", role="search"):
            search = text_field("Search names, tags and descriptions", self._filter.search).props(
                "clearable debounce=300"
            )
            search.classes("grow")
            state = choice_field("State", _STATES, "")
            self._tag_row = div("row-of")
        search.on_value_change(lambda event: self._narrow(search=event.value or ""))
        state.on_value_change(lambda event: self._narrow(status=event.value))

    async def _narrow(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self._filter, name, value)
        with keyed_redraw(self._tag_row):
            for each in self._filter.tags:
                button(
                    f"{each} ×",
                    lambda each=each: self._drop(each),
                    "small",
                    label=f"Remove the tag {each} from the filter",
                )
        await self._list.restart()

    async def _drop(self, tag_name: str) -> None:
        await self._narrow(tags=[each for each in self._filter.tags if each != tag_name])

    async def _fetch(self, after: str | None) -> Json:
        place = "/admin/v1/adapters" if self._all else "/v1/adapters"
        page = await self._context.api.get(place, **self._filter.params(), after=after, limit=ROWS)
        if self._all:
            await self._tenants.fetch(row["tenant_id"] for row in page["data"])
        return page

    def _show(self, page: Json) -> None:
        table("Adapters", self._columns(), page["data"])

    def _nothing(self) -> None:
        if self._filter.is_set:
            with empty(
                "o_search_off",
                "Nothing found",
                "No adapter matches. Search for part of a name, a tag or a word of the description.",
            ):
                pass
        elif self._all:
            with empty("o_layers", "No adapters yet", "Tenants upload adapters with their own keys."):
                link("Go to tenants", "/tenants", "button")
        else:
            words = "Train an adapter with PEFT, save it, and upload its two files here. It is ready once checked."
            with empty("o_layers", "No adapters yet", words):
                if self._context.caller.may("adapters:write"):
                    button("Upload your first adapter", self._upload, "primary")

    def _columns(self) -> list[Column[Json]]:
        common = [
            Column("Name", self._name),
            Column("State", lambda row: state_chip(row["status"])),
            Column("Tags", self._tags),
            Column(
                "Latest", lambda row: "–" if row["latest_version"] is None else f"v{row['latest_version']}", "number"
            ),
        ]
        if not self._all:
            where = Column[Json]("Residency", lambda row: _residency(row["residency"]))
            return [*common, where, Column("Updated", lambda row: formats.ago(row["updated_at"]), "nowrap")]
        return [
            common[0],
            Column("Tenant", lambda row: self._tenants.name(row["tenant_id"]), "break"),
            *common[1:],
            Column("Engine residency", _held),
            Column("Placement", self._placement),
        ]

    def _name(self, row: Json) -> None:
        with div("stack tight"):
            if self._all or row["status"] == "deleted":
                tag("b", row["name"], classes="break")
            else:
                link(row["name"], path("adapters", row["name"]), "break")
            if row["description"]:
                tag("span", row["description"][:90], classes="muted small break")
            if row["status"] == "deleted" and not self._all:
                button("Restore", lambda: self._restore(row["name"]), "small", label=f"Restore {row['name']}")

    def _tags(self, row: Json) -> None:
        with div("row-of"):
            for each in row["tags"]:
                made = button(each, lambda each=each: self._narrow(tags=[*{*self._filter.tags, each}]))
                made.classes("chip chip-button", remove="button")
            if not row["tags"]:
                tag("span", "–", classes="muted")

    def _placement(self, row: Json) -> None:
        field = choice_field("", _PLACEMENTS, row["placement"] or "")
        field.props["aria-label"] = f"Placement of {row['name']}"
        field.on_value_change(lambda event: self._place(row, event.value))

    async def _place(self, row: Json, placement: str) -> None:
        work = self._context.api.patch(path("admin", "v1", "adapters", row["id"]), {"placement": placement or None})
        await run_and_notify(work, f"The placement of {row['name']} is now: {_PLACEMENTS[placement]}.")
        await self._list.load()

    async def _restore(self, name: str) -> None:
        if await run_and_notify(
            self._context.api.post(path("v1", "adapters", name, "restore")), f"{name} was restored."
        ):
            await self._list.load()

    def _upload(self) -> None:
        async def show(name: str) -> None:
            ui.navigate.to(path("adapters", name))

        upload_dialog(self._context, show)


def _residency(where: str | None) -> Any:
    return chip("unknown") if where is None else state_chip(where)


def _held(row: Json) -> None:
    with div("row-of"):
        for held in row["held"]:
            pinned = ", pinned" if held["pinned"] else ""
            chip(f"v{held['version']} {held['tier']}{pinned}", "accent" if held["tier"] == "device" else "info")
        if not row["held"]:
            tag("span", "–", classes="muted")
