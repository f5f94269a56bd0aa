"""Adapters: a tenant's own, or the operator's view of all."""

from dataclasses import dataclass, field
from typing import Any

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.adapters.imports import Imports
from loragate.panel.pages.adapters.upload import upload_sheet
from loragate.panel.pages.page import Here
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import choice_field, text_field
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, link, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import redrawn
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import attempt
from loragate.panel.tenant_names import TenantNames

_STATES = {"": "All states", "ready": "Ready", "disabled": "Disabled", "deleted": "Deleted"}
_PLACEMENTS = {"": "as used", "pinned": "pinned to the device", "prefetched": "prefetched to disk"}


@dataclass
class _Asked:
    """What the list is narrowed to."""

    search: str = ""
    status: str = ""
    tags: list[str] = field(default_factory=list)

    @property
    def narrowed(self) -> bool:
        return bool(self.search or self.status or self.tags)

    def params(self) -> dict[str, Any]:
        return {"search": self.search or None, "status": self.status or None, "tag": self.tags or None}


def draw(here: Here) -> None:
    """The list, with what narrows it on top."""
    _Adapters(here).draw()


class _Adapters:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._asked = _Asked(search=here.query.get("search", ""))
        self._tenants = TenantNames(here.api)
        self._imports = Imports(here)
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading(
                "Adapters", "What all tenants have." if self._all else "Each a model of its own beside the base model."
            )
            if not self._all and self._here.caller.may("adapters:write"):
                with div("actions"):
                    button("Import", self._imports.begin, label="Import an adapter from elsewhere")
                    button("Upload an adapter", self._upload, "primary")
        with div("stack"):
            self._tools()
            self._list = Listing(self._fetch, self._show, self._nothing, every=15)
            if not self._all and self._here.caller.may("adapters:read"):
                self._imports.draw()

    @property
    def _all(self) -> bool:
        return self._here.caller.is_operator

    def _tools(self) -> None:
        with div("tools", role="search"):
            search = text_field("Search names, tags and descriptions", self._asked.search).props(
                "clearable debounce=300"
            )
            search.classes("grow")
            state = choice_field("State", _STATES, "")
            self._tag_row = div("row-of")
        search.on_value_change(lambda event: self._narrow(search=event.value or ""))
        state.on_value_change(lambda event: self._narrow(status=event.value))

    async def _narrow(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self._asked, name, value)
        with redrawn(self._tag_row):
            for each in self._asked.tags:
                button(f"{each} ×", lambda each=each: self._drop(each), "small", label=f"Any tag, not only {each}")
        await self._list.restart()

    async def _drop(self, tag_name: str) -> None:
        await self._narrow(tags=[each for each in self._asked.tags if each != tag_name])

    async def _fetch(self, after: str | None) -> Json:
        place = "/admin/v1/adapters" if self._all else "/v1/adapters"
        page = await self._here.api.get(place, **self._asked.params(), after=after, limit=ROWS)
        if self._all:
            await self._tenants.learn(row["tenant_id"] for row in page["data"])
        return page

    def _show(self, page: Json) -> None:
        table("Adapters", self._columns(), page["data"])

    def _nothing(self) -> None:
        if self._asked.narrowed:
            with empty(
                "o_search_off", "Nothing found", "No adapter is like that. Look for part of a name, a tag or a word."
            ):
                pass
        elif self._all:
            with empty("o_layers", "No adapters yet", "Tenants upload theirs with their own keys."):
                link("To the tenants", "/tenants", "button")
        else:
            words = (
                "Train one with PEFT, save it, and drop its two files here. It can be asked as soon as it is checked."
            )
            with empty("o_layers", "No adapters yet", words):
                if self._here.caller.may("adapters:write"):
                    button("Upload the first one", self._upload, "primary")

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
            where = Column[Json]("Where", lambda row: _residency(row["residency"]))
            return [*common, where, Column("Changed", lambda row: formats.ago(row["updated_at"]), "nowrap")]
        return [
            common[0],
            Column("Tenant", lambda row: self._tenants.name(row["tenant_id"]), "break"),
            *common[1:],
            Column("Held by engines", _held),
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
                made = button(each, lambda each=each: self._narrow(tags=[*{*self._asked.tags, each}]))
                made.classes("chip chip-button", remove="button")
            if not row["tags"]:
                tag("span", "–", classes="muted")

    def _placement(self, row: Json) -> None:
        field = choice_field("", _PLACEMENTS, row["placement"] or "")
        field.props["aria-label"] = f"Placement of {row['name']}"
        field.on_value_change(lambda event: self._place(row, event.value))

    async def _place(self, row: Json, placement: str) -> None:
        work = self._here.api.patch(path("admin", "v1", "adapters", row["id"]), {"placement": placement or None})
        words = f"is {_PLACEMENTS[placement]} now." if placement else "is loaded as it is used now."
        await attempt(work, f"{row['name']} {words}")
        await self._list.load()

    async def _restore(self, name: str) -> None:
        if await attempt(self._here.api.post(path("v1", "adapters", name, "restore")), f"{name} is back."):
            await self._list.load()

    def _upload(self) -> None:
        async def show(name: str) -> None:
            ui.navigate.to(path("adapters", name))

        upload_sheet(self._here, show)


def _residency(where: str | None) -> Any:
    return chip("not known") if where is None else state_chip(where)


def _held(row: Json) -> None:
    with div("row-of"):
        for held in row["held"]:
            pinned = ", pinned" if held["pinned"] else ""
            chip(f"v{held['version']} {held['tier']}{pinned}", "accent" if held["tier"] == "device" else "info")
        if not row["held"]:
            tag("span", "–", classes="muted")
