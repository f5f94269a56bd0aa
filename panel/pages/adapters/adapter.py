"""The page of one adapter: properties, aliases, versions and differences between versions."""

from loragate.panel.api import Json
from loragate.panel.pages.adapters.aliases import draw_aliases
from loragate.panel.pages.adapters.context import AdapterContext
from loragate.panel.pages.adapters.differences import draw_differences
from loragate.panel.pages.adapters.merged_export import fetch_merged_exports, open_merged_export
from loragate.panel.pages.adapters.upload import upload_dialog
from loragate.panel.pages.adapters.versions import draw_versions
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import area_field, text_field
from loragate.panel.parts.elements.limit_fields import LIMITS, LimitFields
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import notify_with_undo, run_and_notify

_Found = tuple[Json, list[Json], bool | None]  # the adapter, its versions, and whether merged exports are switched on


def draw(page: PageContext) -> None:
    """Draw the page."""
    AdapterPage(page).draw()


class AdapterPage:
    """The page's sections, drawn from one fetch of the adapter and its versions."""

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._name = page.names["name"]
        self._context = AdapterContext(page, self._name, page.caller.may("adapters:write"), self._reload)
        self._region: AsyncRegion[_Found]
        self._failed_download = page.query.get("merged", ""), page.query.get("status", "")

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading(self._name, back=("Adapters", "/adapters"))
        self._region = AsyncRegion(self._fetch, self._show)

    async def _reload(self) -> None:
        await self._region.load()

    async def _fetch(self) -> _Found:
        adapter = await self._page.api.get(self._context.at())
        versions = await self._page.api.list_all(self._context.at("versions"))
        return adapter, versions, await fetch_merged_exports(self._context)

    def _show(self, found: _Found) -> None:
        adapter, versions, merged_exports = found
        self._show_head(adapter)
        with div("grid-2"):
            self._facts(adapter)
            self._ask(adapter)
        draw_aliases(self._context, adapter, versions)
        draw_versions(self._context, adapter, versions, merged_exports)
        draw_differences(self._context, versions)
        if merged_exports is not None:
            self._show_failed_download()

    def _show_failed_download(self) -> None:
        """Open the dialog of the merged model whose download has led back to this page, once."""
        version, status = self._failed_download
        self._failed_download = "", ""
        if version.isdecimal() and status.isdecimal():
            open_merged_export(self._context, int(version), int(status))

    def _show_head(self, adapter: Json) -> None:
        with keyed_redraw(self._head):
            heading(self._name, adapter["description"], back=("Adapters", "/adapters"))
            with div("actions"):
                if self._page.caller.may("inference"):
                    link("Try it", f"/playground?model={self._name}", "button")
                if self._context.may_write:
                    button("New version", self._upload, "primary")

    def _facts(self, adapter: Json) -> None:
        with div("card"), div("stack"):
            with div("row-of apart"):
                tag("h2", "About")
                if self._context.may_write:
                    with div("row-of"):
                        button("Limits", lambda: self._limit(adapter), "small", label=f"Limits of {self._name}")
                        button("Edit", lambda: self._edit(adapter), "small", label="Edit tags and description")
            with tag("dl", classes="facts"):
                tag("dt", "State")
                with tag("dd"), div("row-of"):
                    state_chip(adapter["status"])
                    if adapter["residency"] is not None:
                        state_chip(adapter["residency"])
                tag("dt", "Tags")
                with tag("dd"), div("row-of"):
                    for each in adapter["tags"]:
                        chip(each)
                    if not adapter["tags"]:
                        tag("span", "none", classes="muted")
                tag("dt", "Limits")
                tag("dd", _limits_words(adapter["limits"]))
                tag("dt", "Created")
                tag("dd", formats.moment(adapter["created_at"]))
                tag("dt", "Updated")
                tag("dd", formats.moment(adapter["updated_at"]))

    def _ask(self, adapter: Json) -> None:
        with div("card"), div("stack"):
            tag("h2", "Model names for requests")
            with tag("dl", classes="facts"):
                for alias in adapter["aliases"]:
                    tag("dt", f"alias {alias}")
                    named = self._name if alias == "default" else f"{self._name}@{alias}"
                    with tag("dd"):
                        tag("code", named)
                if adapter["latest_version"] is not None:
                    tag("dt", "single version")
                    with tag("dd"):
                        tag("code", f"{self._name}:{adapter['latest_version']}")
            if self._context.may_write:
                with div("row-of"):
                    out = adapter["status"] == "disabled"
                    words = "Enable" if out else "Disable"
                    label = f"{words} {self._name}"
                    button(words, lambda: self._set_status("ready" if out else "disabled"), "small", label=label)
                    button("Delete", self._delete, "small danger", label=f"Delete {self._name}")

    def _upload(self) -> None:
        async def there(_: str) -> None:
            await self._reload()

        upload_dialog(self._page, there, self._name)

    def _edit(self, adapter: Json) -> None:
        async def save() -> None:
            words = [each.strip() for each in tags.value.split(",") if each.strip()]
            work = self._page.api.patch(self._context.at(), {"tags": words, "description": description.value})
            if await run_and_notify(work, "Saved."):
                dialog.close()
                await self._reload()

        with open_dialog("Tags and description") as dialog:
            tags = text_field("Tags, separated by commas", ", ".join(adapter["tags"]))
            description = area_field("Description", adapter["description"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    def _limit(self, adapter: Json) -> None:
        async def save() -> None:
            work = self._page.api.patch(self._context.at(), {"limits": limits.body()})
            if await run_and_notify(work, "Saved. The limits apply from the next request."):
                dialog.close()
                await self._reload()

        with open_dialog(f"Limits of {self._name}") as dialog:
            muted("These limits apply to the adapter as a whole, in addition to the tenant's. Empty means unlimited.")
            with div("controls"):
                limits = LimitFields(adapter["limits"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    async def _set_status(self, status: str) -> None:
        words = (
            "The adapter is enabled." if status == "ready" else "The adapter is disabled: its requests get status 403."
        )
        if await run_and_notify(self._page.api.patch(self._context.at(), {"status": status}), words):
            await self._reload()

    async def _delete(self) -> None:
        async def undo() -> None:
            if await run_and_notify(self._page.api.post(self._context.at("restore")), f"{self._name} was restored."):
                await self._reload()

        if await run_and_notify(self._page.api.delete(self._context.at())):
            notify_with_undo(f"{self._name} was deleted with its versions and aliases.", undo)
            with keyed_redraw(self._head):
                heading(self._name, "This adapter was deleted.", back=("Adapters", "/adapters"))
            self._region.empty()


def _limits_words(limits: Json) -> str:
    set_ = [f"{formats.count(limits[key])} {words.lower()}" for key, words in LIMITS.items() if limits[key] is not None]
    return ", ".join(set_) or "only the tenant's limits"
