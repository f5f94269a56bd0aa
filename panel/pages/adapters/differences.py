"""The differences between two versions: their configs, properties and lineage, field by field."""

import asyncio
import json
from operator import itemgetter
from typing import Any

from loragate.panel.api import Json
from loragate.panel.pages.adapters.context import AdapterContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.fields import choice_field
from loragate.panel.parts.elements.tag import div, muted, tag

_FACTS = ("digest", "rank", "size_bytes", "base_model", "lineage")
_COLUMNS = (
    Column[tuple[str, Any, Any]]("Field", lambda row: row[0], "nowrap"),
    Column[tuple[str, Any, Any]]("Before", lambda row: _value(row[1], "diff-old"), "break"),
    Column[tuple[str, Any, Any]]("After", lambda row: _value(row[2], "diff-new"), "break"),
)


def draw_differences(context: AdapterContext, versions: list[Json]) -> None:
    """Draw the comparison, if there is more than one version."""
    if len(versions) < 2:
        return
    by_number = {version["version"]: version for version in versions}
    names = {number: f"Version {number}" for number in by_number}
    newest, second = list(by_number)[:2]

    async def fetch() -> list[tuple[str, Any, Any]]:
        old, new = await asyncio.gather(*(_document(context, by_number[each.value]) for each in (before, after)))
        return differences(old, new)

    def show(found: list[tuple[str, Any, Any]]) -> None:
        if found:
            with div("card flush"):
                table("Differences", _COLUMNS, found, itemgetter(0))
        else:
            muted("There are no differences.")

    with tag("section", classes="stack"):
        tag("h2", "Differences")
        with div("tools"):
            before = choice_field("Before", names, second)
            after = choice_field("After", names, newest)
        region = AsyncRegion(fetch, show)
        for field in (before, after):
            field.on_value_change(region.load)


async def _document(context: AdapterContext, version: Json) -> Json:
    """Return a version's properties and config as one document."""
    file = context.at("versions", version["version"], "files", "adapter_config.json")
    config: Json = json.loads(await context.api.text(file))
    return {**{name: version[name] for name in _FACTS}, **config}


def differences(old: Json, new: Json, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Return the fields that differ, by dotted path, with both values; None for a missing one."""
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{name}.")
        elif before != after:
            found.append((f"{prefix}{name}", before, after))
    return found


def _value(value: Any, classes: str) -> None:
    text = "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    tag("span", text, classes=f"mono small {classes}")
