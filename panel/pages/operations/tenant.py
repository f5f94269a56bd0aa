"""One tenant, for the operator: its limits and its keys."""

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.operations.keys import Keys
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import number_field, text_field
from loragate.panel.parts.controls.limit_fields import LIMITS, LimitFields
from loragate.panel.parts.dialog import confirm
from loragate.panel.parts.display.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import redrawn
from loragate.panel.parts.notify import attempt

_LIMITS = LIMITS | {
    "max_adapters": "Adapters",
    "max_storage_bytes": "Bytes kept",
    "max_adapter_rank": "Largest rank",
    "max_unfinished_jobs": "Unfinished jobs",
}


def draw(here: Here) -> None:
    """All of it."""
    _Tenant(here).draw()


class _Tenant:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._id = here.names["tenant"]
        self._at = path("admin", "v1", "tenants", self._id)

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading("Tenant", back=("Tenants", "/tenants"))
        Region(self._fetch, self._show)
        with tag("section", classes="stack", aria_label="Keys").style("margin-top: var(--s6)"):
            Keys(self._here.api, self._id).draw(level=2)

    async def _fetch(self) -> Json:
        return await self._here.api.get(self._at)

    def _show(self, tenant: Json) -> None:
        with redrawn(self._head):
            heading(tenant["name"], tenant["id"], back=("Tenants", "/tenants"))
            with div("actions"):
                link("Usage", "/usage", "button")
                button("Delete", lambda: self._delete(tenant), "danger", label=f"Delete {tenant['name']}")
        with div("card"), div("stack"):
            tag("h2", "Name, weight and limits")
            muted("They hold from the next request on. An empty field is unlimited.")
            with div("controls"):
                name = text_field("Name", tenant["name"])
                weight = number_field("Weight", tenant["weight"], least=0.01, step=0.5)
                limits = LimitFields(tenant["limits"], _LIMITS)
            with div("row-of"):
                button("Save limits", lambda: self._save(name, weight, limits), "primary")

    async def _save(self, name: ui.input, weight: ui.number, limits: LimitFields) -> None:
        body = {"name": name.value, "weight": float(weight.value or 1), "limits": limits.body()}
        await attempt(self._here.api.patch(self._at, body), "Saved. It holds from the next request on.")

    def _delete(self, tenant: Json) -> None:
        async def go() -> None:
            if await attempt(self._here.api.delete(self._at)):
                ui.navigate.to("/tenants")

        words = "Its adapters, keys and files go with it. This cannot be undone."
        confirm(f"Delete {tenant['name']}?", words, "Delete", go)
