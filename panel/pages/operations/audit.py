"""The audit log."""

import json
from typing import Any

from loragate.panel.api import Json
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.fields import text_field
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing

_COLUMNS = (
    Column[Json]("Time", lambda row: formats.moment(row["created_at"]), "nowrap"),
    Column[Json]("Actor", lambda row: str(row["actor"]), "break"),
    Column[Json]("Action", lambda row: str(row["action"]), "nowrap"),
    Column[Json]("Target", lambda row: str(row["target"]), "break"),
    Column[Json]("Change", lambda row: _change(row), "break"),
)


def draw(context: PageContext) -> None:
    """Draw the log and its filter."""
    _Audit(context).draw()


class _Audit:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._only: dict[str, str | None] = {}
        self._list: Listing

    def draw(self) -> None:
        with div("head"):
            heading("Audit", "All changes, newest first. Secrets are never recorded.")
        with div("stack"):
            with div("tools", role="search"):
                actor = text_field("Actor", placeholder="admin_key").props("clearable debounce=300")
                action = text_field("Action", placeholder="adapter_version.create").props("clearable debounce=300")
            self._list = Listing(self._fetch, _show, _nothing)
        actor.on_value_change(lambda event: self._narrow("actor", event.value))
        action.on_value_change(lambda event: self._narrow("action", event.value))

    async def _narrow(self, name: str, value: str | None) -> None:
        self._only[name] = (value or "").strip() or None
        await self._list.restart()

    async def _fetch(self, after: str | None) -> Json:
        return await self._context.api.get("/admin/v1/audit", after=after, limit=ROWS, **self._only)


def _show(page: Json) -> None:
    table("Audit log", _COLUMNS, page["data"])


def _nothing() -> None:
    with empty("o_history", "Nothing found", "No change matches."):
        pass


def _change(row: Json) -> None:
    before, after = facts_set(row["before"]), facts_set(row["after"])
    with div("stack tight"):
        for name in sorted(before.keys() | after.keys())[:4]:
            with tag("span", classes="small"):
                tag("span", f"{name} ", classes="muted")
                if name in before:
                    tag("span", _short(before[name]), classes="diff-old")
                    tag("span", " ")
                if name in after:
                    tag("span", _short(after[name]), classes="diff-new")


def facts_set(facts: Json | None) -> Json:
    """Return the fields that are set, without nulls at any depth."""
    shown = {name: facts_set(value) if isinstance(value, dict) else value for name, value in (facts or {}).items()}
    return {name: value for name, value in shown.items() if value not in (None, {})}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:58]}…"
