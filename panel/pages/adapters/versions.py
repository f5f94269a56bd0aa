"""The versions of an adapter, with their actions."""

from operator import itemgetter
from urllib.parse import quote

from loragate.panel.api import Json
from loragate.panel.pages.adapters.context import AdapterContext
from loragate.panel.pages.adapters.merged_export import draw_merged_export
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, link, tag
from loragate.panel.parts.notify import notify_with_undo, run_and_notify

_SHOWN_LABELS = 5


def draw_versions(context: AdapterContext, adapter: Json, versions: list[Json], merged_exports: bool | None) -> None:
    """Draw the versions, latest first. `merged_exports` is what `fetch_merged_exports` has returned."""
    _Versions(context, adapter["aliases"], merged_exports).draw(versions)


class _Versions:
    def __init__(self, context: AdapterContext, aliases: dict[str, list[Json]], merged_exports: bool | None) -> None:
        self._context = context
        self._aliases = aliases
        self._merged_exports = merged_exports

    def draw(self, versions: list[Json]) -> None:
        columns = [
            Column[Json]("Version", lambda row: f"v{row['version']}"),
            Column[Json]("State", self._state),
            Column[Json]("Aliases", self._serves),
            Column[Json]("Rank", lambda row: str(row["rank"]), "number"),
            Column[Json]("Size", lambda row: formats.size(row["size_bytes"]), "number"),
            Column[Json]("Source", self._lineage),
            Column[Json]("Created", lambda row: formats.ago(row["created_at"]), "nowrap"),
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
            parent = f" from v{lineage['parent_version']}" if lineage["parent_version"] else ""
            tag("span", f"{lineage['source']}{parent}", classes="break")
            if row["classifier"]:
                labels = ", ".join(row["classifier"]["labels"][:_SHOWN_LABELS])
                more = ", …" if row["classifier"]["num_labels"] > _SHOWN_LABELS else ""
                name = quote(f"{self._context.name}:{row['version']}", safe="")
                link(f"classifies: {labels}{more}", f"/classify?model={name}", "small break")
            if row["signer"]:
                tag("span", f"signed by {row['signer']}", classes="small muted break")
            if lineage["notes"]:
                tag("span", lineage["notes"], classes="small muted break")

    def _acts(self, row: Json) -> None:
        number = row["version"]
        file = f"/transfer/adapters/{self._context.name}/{number}"
        with div("row-of"):
            tag(
                "a",
                "Download",
                classes="button small quiet",
                href=f"{file}/adapter_model.safetensors",
                aria_label=f"Download the tensors of version {number}",
            )
            if self._merged_exports is not None:
                draw_merged_export(self._context, row, switched_on=self._merged_exports)
            if not self._context.may_write:
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
            if await run_and_notify(
                api.post(context.at("rollback"), {"alias": "default"}), "The promotion was undone."
            ):
                await context.reload()

        context, api = self._context, self._context.api
        if await run_and_notify(api.post(context.at("promote"), {"alias": "default", "version": number})):
            notify_with_undo(f"Version {number} now serves all requests for {context.name}.", undo)
            await context.reload()

    async def _set_status(self, number: int, status: str) -> None:
        words = f"Version {number} is {'enabled' if status == 'ready' else 'disabled'}."
        if await run_and_notify(
            self._context.api.patch(self._context.at("versions", number), {"status": status}), words
        ):
            await self._context.reload()

    async def _delete(self, number: int) -> None:
        async def undo() -> None:
            if await run_and_notify(
                api.post(context.at("versions", number, "restore")), f"Version {number} was restored."
            ):
                await context.reload()

        context, api = self._context, self._context.api
        if await run_and_notify(api.delete(context.at("versions", number))):
            notify_with_undo(f"Version {number} was deleted.", undo)
            await context.reload()
