"""How two versions differ: their configs field by field, and where they came from."""

import asyncio
import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from loragate.panel.api import Json
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.fields import choice_field
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, muted, tag

if TYPE_CHECKING:
    from loragate.panel.pages.adapters.adapter import AdapterPage

_FACTS = ("digest", "rank", "size_bytes", "base_model", "lineage")
_COLUMNS = (
    Column[tuple[str, Any, Any]]("Field", lambda row: row[0], "nowrap"),
    Column[tuple[str, Any, Any]]("Before", lambda row: _value(row[1], "diff-old"), "break"),
    Column[tuple[str, Any, Any]]("After", lambda row: _value(row[2], "diff-new"), "break"),
)


def draw_differences(page: "AdapterPage", versions: list[Json]) -> None:
    """Nothing while there is one version."""
    if len(versions) < 2:
        return
    by_number = {version["version"]: version for version in versions}
    names = {number: f"Version {number}" for number in by_number}
    newest, second = list(by_number)[:2]

    async def fetch() -> list[tuple[str, Any, Any]]:
        old, new = await asyncio.gather(*(_document(page, by_number[each.value]) for each in (before, after)))
        return differences(old, new)

    def show(found: list[tuple[str, Any, Any]]) -> None:
        if found:
            with div("card flush"):
                table("Differences", _COLUMNS, found, itemgetter(0))
        else:
            muted("They do not differ.")

    with tag("section", classes="stack"):
        tag("h2", "What differs")
        with div("tools"):
            before = choice_field("Before", names, second)
            after = choice_field("After", names, newest)
        region = Region(fetch, show)
        for field in (before, after):
            field.on_value_change(region.load)


async def _document(page: "AdapterPage", version: Json) -> Json:
    """Its facts and its config, as one."""
    file = page.at("versions", version["version"], "files", "adapter_config.json")
    config: Json = json.loads(await page.here.api.text(file))
    return {**{name: version[name] for name in _FACTS}, **config}


def differences(old: Json, new: Json, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Fields by dotted path with both values, None where one has none."""
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
