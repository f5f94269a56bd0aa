"""The page of one tenant, for the operator: its limits and keys."""

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.operations.keys import Keys
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import confirm
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import number_field, text_field
from loragate.panel.parts.elements.limit_fields import LIMITS, LimitFields
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import run_and_notify

_LIMITS = LIMITS | {
    "max_adapters": "Adapters",
    "max_storage_bytes": "Stored bytes",
    "max_objects": "Stored objects",
    "max_adapter_rank": "Maximum rank",
    "max_unfinished_jobs": "Unfinished jobs",
    "max_job_training_tokens": "Training tokens per job",
    "max_job_training_seconds": "Training seconds per job",
    "training_tokens_per_minute": "Training tokens per minute",
    "training_tokens_per_day": "Training tokens per day",
    "training_tokens_per_month": "Training tokens per month",
    "training_seconds_per_day": "Training seconds per day",
    "training_seconds_per_month": "Training seconds per month",
    "max_unfinished_batches": "Unfinished batches",
    "max_batch_lines": "Lines of a batch",
    "max_batch_bytes": "Bytes of a batch",
    "batch_tokens_per_day": "Batch tokens per day",
    "max_training_sessions": "Training sessions",
    "max_training_runs": "Training runs",
    "max_stored_responses": "Stored responses",
}


def draw(context: PageContext) -> None:
    """Draw the page."""
    _Tenant(context).draw()


class _Tenant:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._id = context.names["tenant"]
        self._at = path("admin", "v1", "tenants", self._id)

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading("Tenant", back=("Tenants", "/tenants"))
        AsyncRegion(self._fetch, self._show)
        with tag("section", classes="stack", aria_label="Keys").style("margin-top: var(--s6)"):
            Keys(self._context.api, self._id).draw(level=2)

    async def _fetch(self) -> Json:
        return await self._context.api.get(self._at)

    def _show(self, tenant: Json) -> None:
        with keyed_redraw(self._head):
            heading(tenant["name"], tenant["id"], back=("Tenants", "/tenants"))
            with div("actions"):
                link("Usage", "/usage", "button")
                button("Delete", lambda: self._delete(tenant), "danger", label=f"Delete {tenant['name']}")
        with div("card"), div("stack"):
            tag("h2", "Name, weight and limits")
            muted("Changes apply from the next request. Empty means unlimited.")
            with div("controls"):
                name = text_field("Name", tenant["name"])
                weight = number_field("Weight", tenant["weight"], minimum=0.01, step=0.5)
                limits = LimitFields(tenant["limits"], _LIMITS)
            with div("row-of"):
                button("Save limits", lambda: self._save(name, weight, limits), "primary")

    async def _save(self, name: ui.input, weight: ui.number, limits: LimitFields) -> None:
        body = {"name": name.value, "weight": float(weight.value or 1), "limits": limits.body()}
        await run_and_notify(self._context.api.patch(self._at, body), "Saved. Changes apply from the next request.")

    def _delete(self, tenant: Json) -> None:
        async def go() -> None:
            if await run_and_notify(self._context.api.delete(self._at)):
                ui.navigate.to("/tenants")

        words = "Its adapters, keys and files are deleted, too. This cannot be undone."
        confirm(f"Delete {tenant['name']}?", words, "Delete", go)
