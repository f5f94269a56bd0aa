"""The aliases of an adapter: their traffic, and the metrics of each version."""

from operator import itemgetter

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.api import Json
from loragate.panel.pages.adapters.context import AdapterContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field, text_field
from loragate.panel.parts.elements.slider import slider
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import notify_with_undo, run_and_notify

_METRICS = (
    Column[Json]("Version", lambda row: f"v{row['version']}" + ("" if row["weight"] is not None else " (removed)")),
    Column[Json]("Requests", lambda row: formats.count(row["requests"]), "number"),
    Column[Json]("Errors", lambda row: formats.count(row["errors"]), "number"),
    Column[Json]("Tokens out", lambda row: formats.count(row["completion_tokens"]), "number"),
    Column[Json]("Time to first token, median", lambda row: _first_token(row, "p50"), "number"),
    Column[Json]("Time to first token, p99", lambda row: _first_token(row, "p99"), "number"),
)


def draw_aliases(context: AdapterContext, adapter: Json, versions: list[Json]) -> None:
    """Draw a card for each alias."""
    ready = [version["version"] for version in versions if version["status"] == "ready"]
    with tag("section", classes="stack"):
        with div("row-of apart"):
            tag("h2", "Aliases and traffic")
            if context.may_write and ready:
                button("New alias", lambda: _new_alias(context, ready), "small")
        for alias, targets in sorted(adapter["aliases"].items(), key=lambda each: (each[0] != "default", each[0])):
            _Alias(context, alias, targets, ready).draw()
        if not adapter["aliases"]:
            muted("No alias points at a version. Requests must name a version by its number.")


class _Alias:
    def __init__(self, context: AdapterContext, alias: str, targets: list[Json], ready: list[int]) -> None:
        self._context = context
        self._alias = alias
        self._ready = ready
        total = sum(target["weight"] for target in targets) or 1
        self._shares = {target["version"]: round(target["weight"] * 100 / total) for target in targets}
        self._saved = dict(self._shares)

    def draw(self) -> None:
        with div("card").mark(self._alias), div("stack"):
            with div("row-of apart"):
                tag("h3", self._alias)
                if self._context.may_write:
                    with div("row-of"):
                        button("Roll back", self._roll_back, "small", label=f"Roll {self._alias} back")
                        if self._alias != "default":
                            label = f"Delete the alias {self._alias}"
                            button("Delete", self._delete, "small quiet danger", label=label)
            self._targets = div("stack tight")
            self._foot = div("row-of")
            self._draw_targets()
            AsyncRegion(self._fetch, self._show_metrics, every=5)

    def _draw_targets(self) -> None:
        self._sliders: dict[int, TextElement] = {}
        self._words: dict[int, TextElement] = {}
        with keyed_redraw(self._targets):
            for version, share in self._shares.items():
                with div("alias-target").mark(str(version)):
                    tag("b", f"Version {version}")
                    self._slide(version, share)
                    self._words[version] = tag("span", f"{share} %", classes="number")
                    self._target_end(version)
        self._draw_foot()

    def _slide(self, version: int, share: int) -> None:
        label = f"Share of version {version} in {self._alias}"
        made = slider(label, share, lambda value: self._move(version, round(value)))
        made.props["disabled"] = len(self._shares) == 1 or not self._context.may_write
        self._sliders[version] = made

    def _target_end(self, version: int) -> None:
        if len(self._shares) > 1 and self._context.may_write:
            button("Remove", lambda: self._remove(version), "small quiet", label=f"Remove version {version}")
        else:
            tag("span")

    def _draw_foot(self) -> None:
        with keyed_redraw(self._foot):
            others = [version for version in self._ready if version not in self._shares]
            if self._context.may_write and others:
                choice = choice_field("Add a version", {v: f"Version {v}" for v in others})
                choice.style("min-width: 210px")
                choice.on_value_change(lambda event: self._add(event.value))
            if self._shares != self._saved:
                button("Save", self._save, "primary", label=f"Save the shares of {self._alias}")
                button("Discard", self._discard, "quiet")

    def _move(self, version: int, share: int) -> None:
        """Set a version's share; the others keep their proportions."""
        others = {each: have for each, have in self._shares.items() if each != version}
        before, left = sum(others.values()), 100 - share
        given = {each: round(have * left / before) if before else left // len(others) for each, have in others.items()}
        first = next(iter(given))
        given[first] += left - sum(given.values())
        self._shares = {each: share if each == version else given[each] for each in self._shares}
        for each, have in self._shares.items():
            self._words[each].text = f"{have} %"
            if each != version:
                self._sliders[each].props["value"] = have
        self._draw_foot()

    def _add(self, version: int) -> None:
        self._shares = {**self._shares, version: 0}
        self._draw_targets()
        self._move(version, 10)
        self._sliders[version].props["value"] = 10

    def _remove(self, version: int) -> None:
        self._move(version, 0)
        del self._shares[version]
        self._draw_targets()

    def _discard(self) -> None:
        self._shares = dict(self._saved)
        self._draw_targets()

    async def _save(self) -> None:
        targets = [{"version": version, "weight": share} for version, share in self._shares.items() if share]
        work = self._context.api.put(self._context.at("aliases", self._alias), {"targets": targets})
        if await run_and_notify(work):
            notify_with_undo(f"{self._alias} uses these shares from the next request.", self._roll_back)
            await self._context.reload()

    async def _roll_back(self) -> None:
        work = self._context.api.post(self._context.at("rollback"), {"alias": self._alias})
        if await run_and_notify(work, f"{self._alias} was rolled back."):
            await self._context.reload()

    async def _delete(self) -> None:
        context, at = self._context, self._context.at("aliases", self._alias)
        targets = [{"version": version, "weight": share} for version, share in self._saved.items() if share]

        async def undo() -> None:
            if await run_and_notify(context.api.put(at, {"targets": targets}), f"{self._alias} was restored."):
                await context.reload()

        if await run_and_notify(context.api.delete(at)):
            notify_with_undo(f"{self._alias} was deleted. Its versions remain.", undo)
            await context.reload()

    async def _fetch(self) -> Json:
        return await self._context.api.get(self._context.at("aliases", self._alias, "metrics"))

    def _show_metrics(self, found: Json) -> None:
        if any(target["requests"] for target in found["targets"]):
            table(f"{self._alias}, last 24 hours", _METRICS, found["targets"], itemgetter("version"))
        else:
            muted("No requests in the last 24 hours.", "small")


def _new_alias(context: AdapterContext, ready: list[int]) -> None:
    async def save() -> None:
        targets = [{"version": version.value, "weight": 1}]
        if await run_and_notify(
            context.api.put(context.at("aliases", name.value.strip()), {"targets": targets}), "Saved."
        ):
            dialog.close()
            await context.reload()

    with open_dialog("New alias") as dialog:
        name = text_field("Name", hint=f"Requests use it as {context.name}@<name>")
        version: ui.select = choice_field("Version", {v: f"Version {v}" for v in ready}, ready[0])
        with div("row-of apart"):
            button("Cancel", dialog.close)
            button("Save", save, "primary")


def _first_token(row: Json, which: str) -> str:
    first = row["ttft_ms"]
    return "–" if first is None else f"{first[which]:.0f} ms"
