"""One adapter: what it is, where its traffic goes, its versions and how they differ."""

from loragate.panel.api import Json, path
from loragate.panel.pages.adapters.aliases import draw_aliases
from loragate.panel.pages.adapters.differences import draw_differences
from loragate.panel.pages.adapters.upload import upload_sheet
from loragate.panel.pages.adapters.versions import draw_versions
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import area_field, text_field
from loragate.panel.parts.controls.limit_fields import LIMITS, LimitFields
from loragate.panel.parts.dialog import sheet
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import redrawn
from loragate.panel.parts.notify import attempt, undoable


def draw(here: Here) -> None:
    """All of it, as one region that is fetched together."""
    AdapterPage(here).draw()


class AdapterPage:
    """What the parts of the page share: the adapter's name, its place in the API, and a way to fetch all anew."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.name = here.names["name"]
        self.may_write = here.caller.may("adapters:write")
        self._region: Region[tuple[Json, list[Json]]]

    def at(self, *parts: str | int) -> str:
        """The address of something of this adapter."""
        return path("v1", "adapters", self.name, *parts)

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading(self.name, back=("Adapters", "/adapters"))
        self._region = Region(self._fetch, self._show)

    async def reload(self) -> None:
        """After something has changed."""
        await self._region.load()

    async def _fetch(self) -> tuple[Json, list[Json]]:
        adapter = await self.here.api.get(self.at())
        return adapter, await self.here.api.everything(self.at("versions"))

    def _show(self, found: tuple[Json, list[Json]]) -> None:
        adapter, versions = found
        self._show_head(adapter)
        with div("grid-2"):
            self._facts(adapter)
            self._ask(adapter)
        draw_aliases(self, adapter, versions)
        draw_versions(self, adapter, versions)
        draw_differences(self, versions)

    def _show_head(self, adapter: Json) -> None:
        with redrawn(self._head):
            heading(self.name, adapter["description"], back=("Adapters", "/adapters"))
            with div("actions"):
                if self.here.caller.may("inference"):
                    link("Try it", f"/playground?model={self.name}", "button")
                if self.may_write:
                    button("New version", self._upload, "primary")

    def _facts(self, adapter: Json) -> None:
        with div("card"), div("stack"):
            with div("row-of apart"):
                tag("h2", "About")
                if self.may_write:
                    with div("row-of"):
                        button("Limits", lambda: self._limit(adapter), "small", label=f"Limits of {self.name}")
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
                tag("dt", "Made")
                tag("dd", formats.moment(adapter["created_at"]))
                tag("dt", "Changed")
                tag("dd", formats.moment(adapter["updated_at"]))

    def _ask(self, adapter: Json) -> None:
        with div("card"), div("stack"):
            tag("h2", "Name it in requests as")
            with tag("dl", classes="facts"):
                for alias in adapter["aliases"]:
                    tag("dt", f"alias {alias}")
                    named = self.name if alias == "default" else f"{self.name}@{alias}"
                    with tag("dd"):
                        tag("code", named)
                if adapter["latest_version"] is not None:
                    tag("dt", "one version")
                    with tag("dd"):
                        tag("code", f"{self.name}:{adapter['latest_version']}")
            if self.may_write:
                with div("row-of"):
                    out = adapter["status"] == "disabled"
                    words = "Put back into service" if out else "Take out of service"
                    button(words, lambda: self._set_status("ready" if out else "disabled"), "small")
                    button("Delete", self._delete, "small danger", label=f"Delete {self.name}")

    def _upload(self) -> None:
        async def there(_: str) -> None:
            await self.reload()

        upload_sheet(self.here, there, self.name)

    def _edit(self, adapter: Json) -> None:
        async def save() -> None:
            words = [each.strip() for each in tags.value.split(",") if each.strip()]
            work = self.here.api.patch(self.at(), {"tags": words, "description": description.value})
            if await attempt(work, "Saved."):
                dialog.close()
                await self.reload()

        with sheet("Tags and description") as dialog:
            tags = text_field("Tags, separated by commas", ", ".join(adapter["tags"]))
            description = area_field("Description", adapter["description"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    def _limit(self, adapter: Json) -> None:
        async def save() -> None:
            work = self.here.api.patch(self.at(), {"limits": limits.body()})
            if await attempt(work, "Saved. It holds from the next request on."):
                dialog.close()
                await self.reload()

        with sheet(f"Limits of {self.name}") as dialog:
            muted("What all its requests together may use, beside the tenant's limits. An empty field is unlimited.")
            with div("controls"):
                limits = LimitFields(adapter["limits"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    async def _set_status(self, status: str) -> None:
        words = "It is in service again." if status == "ready" else "It is out of service: requests for it get 403."
        if await attempt(self.here.api.patch(self.at(), {"status": status}), words):
            await self.reload()

    async def _delete(self) -> None:
        async def undo() -> None:
            if await attempt(self.here.api.post(self.at("restore")), f"{self.name} is back."):
                await self.reload()

        if await attempt(self.here.api.delete(self.at())):
            undoable(f"{self.name} is deleted, with its versions and aliases.", undo)
            with redrawn(self._head):
                heading(self.name, "It is deleted.", back=("Adapters", "/adapters"))
            self._region.empty()


def _limits_words(limits: Json) -> str:
    set_ = [f"{formats.count(limits[key])} {words.lower()}" for key, words in LIMITS.items() if limits[key] is not None]
    return ", ".join(set_) or "none of its own"
