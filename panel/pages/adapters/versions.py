"""An adapter's versions, and what can be done with each."""

from operator import itemgetter
from typing import TYPE_CHECKING

from loragate.panel.api import Json
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, tag
from loragate.panel.parts.notify import attempt, undoable

if TYPE_CHECKING:
    from loragate.panel.pages.adapters.adapter import AdapterPage


def draw_versions(page: "AdapterPage", adapter: Json, versions: list[Json]) -> None:
    """The latest first."""
    _Versions(page, adapter["aliases"]).draw(versions)


class _Versions:
    def __init__(self, page: "AdapterPage", aliases: dict[str, list[Json]]) -> None:
        self._page = page
        self._aliases = aliases

    def draw(self, versions: list[Json]) -> None:
        columns = [
            Column[Json]("Version", lambda row: f"v{row['version']}"),
            Column[Json]("State", self._state),
            Column[Json]("Serves", self._serves),
            Column[Json]("Rank", lambda row: str(row["rank"]), "number"),
            Column[Json]("Size", lambda row: formats.size(row["size_bytes"]), "number"),
            Column[Json]("Where from", self._lineage),
            Column[Json]("Made", lambda row: formats.ago(row["created_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        with tag("section", classes="stack"):
            tag("h2", "Versions")
            with div("card flush"):
                table("Versions", columns, versions, itemgetter("version"))

    def _state(self, row: Json) -> None:
        with div("stack tight"):
            with div("row-of"):
                state_chip(row["status"])
                if row["residency"] not in (None, "none"):
                    state_chip(row["residency"])
            if row["reason"]:
                tag("span", row["reason"], classes="small muted break")

    def _serves(self, row: Json) -> None:
        with div("row-of"):
            served = list(self._shares(row["version"]))
            for words in served:
                chip(words, "accent")
            if not served:
                tag("span", "–", classes="muted")

    def _shares(self, version: int) -> list[str]:
        found = []
        for alias, targets in self._aliases.items():
            total = sum(target["weight"] for target in targets) or 1
            share = sum(target["weight"] for target in targets if target["version"] == version) * 100 / total
            if share:
                found.append(alias if share == 100 else f"{alias} {share:.3g} %")
        return found

    def _lineage(self, row: Json) -> None:
        lineage = row["lineage"]
        with div("stack tight"):
            parent = f" of v{lineage['parent_version']}" if lineage["parent_version"] else ""
            tag("span", f"{lineage['source']}{parent}", classes="break")
            if lineage["notes"]:
                tag("span", lineage["notes"], classes="small muted break")

    def _acts(self, row: Json) -> None:
        number = row["version"]
        file = f"/transfer/adapters/{self._page.name}/{number}"
        with div("row-of"):
            tag(
                "a",
                "Download",
                classes="button small quiet",
                href=f"{file}/adapter_model.safetensors",
                aria_label=f"Download the tensors of version {number}",
            )
            if not self._page.may_write:
                return
            if "default" not in self._shares(number) and row["status"] == "ready":
                button("Promote", lambda: self._promote(number), "small", label=f"Promote version {number}")
            if row["status"] in ("ready", "disabled"):
                out = row["status"] == "disabled"
                words = "Enable" if out else "Disable"
                status = "ready" if out else "disabled"
                button(
                    words, lambda: self._set_status(number, status), "small quiet", label=f"{words} version {number}"
                )
            button("Delete", lambda: self._delete(number), "small quiet danger", label=f"Delete version {number}")

    async def _promote(self, number: int) -> None:
        async def undo() -> None:
            if await attempt(api.post(page.at("rollback"), {"alias": "default"}), "Rolled back."):
                await page.reload()

        page, api = self._page, self._page.here.api
        if await attempt(api.post(page.at("promote"), {"alias": "default", "version": number})):
            undoable(f"Version {number} answers all requests for {page.name} now.", undo)
            await page.reload()

    async def _set_status(self, number: int, status: str) -> None:
        words = f"Version {number} is {'in' if status == 'ready' else 'out of'} service."
        if await attempt(self._page.here.api.patch(self._page.at("versions", number), {"status": status}), words):
            await self._page.reload()

    async def _delete(self, number: int) -> None:
        async def undo() -> None:
            if await attempt(api.post(page.at("versions", number, "restore")), f"Version {number} is back."):
                await page.reload()

        page, api = self._page, self._page.here.api
        if await attempt(api.delete(page.at("versions", number))):
            undoable(f"Version {number} is deleted.", undo)
            await page.reload()
