"""A tenant's keys: created, shown once, rotated, limited and revoked."""

from datetime import UTC, datetime, timedelta

from nicegui import ui

from loragate.panel.api import Api, Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.code_block import copy
from loragate.panel.parts.dialog import confirm, open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field, number_field, text_field
from loragate.panel.parts.elements.limit_fields import LimitFields
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import notify_error, run_and_notify

SCOPES = {
    "all": "all except managing keys",
    "inference": "use models",
    "adapters:read": "read adapters",
    "adapters:write": "change adapters",
    "finetune": "train adapters",
    "train": "use the training API",
    "export": "export the base model merged with an adapter",
    "usage": "read usage",
    "admin": "manage keys",
}


def draw(context: PageContext) -> None:
    """Draw the keys of the caller's own tenant."""
    assert context.caller.tenant_id is not None
    if not context.caller.may("admin"):
        with div("head"):
            heading("Keys")
        with div("card"), empty("o_lock", "No access", "This page needs a key with the scope “admin”."):
            muted("Ask the operator of this server for one.")
        return
    Keys(context.api, context.caller.tenant_id, own=context.caller.key_id).draw()


class Keys:
    """The keys of one tenant. `own` is the id of the key that the caller signed in with."""

    def __init__(self, api: Api, tenant_id: str, *, own: str | None = None) -> None:
        self._api = api
        self._at = path("admin", "v1", "tenants", tenant_id, "keys")
        self._own = own
        self._list: Listing

    def draw(self, *, level: int = 1) -> None:
        """Draw the list, as a page or as a section of one."""
        with div("head"):
            words = "A key's scopes define what it can do. Its secret is shown only once, when it is created."
            heading("Keys", words, level=level)
            with div("actions"):
                button("New key", self._make, "primary")
        self._list = Listing(self._fetch, self._show, self._nothing)

    async def _fetch(self, after: str | None) -> Json:
        return await self._api.get(self._at, after=after, limit=ROWS)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Name", self._name),
            Column[Json]("State", lambda row: _state(row)),
            Column[Json]("Scopes", _scopes),
            Column[Json]("Last used", lambda row: formats.ago(row["last_used_at"]), "nowrap"),
            Column[Json]("Expires", lambda row: formats.moment(row["expires_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Keys", columns, page["data"])

    def _nothing(self) -> None:
        with empty("o_key", "No keys yet", "Programs need a key to send requests."):
            button("Create a key", self._make, "primary")

    def _name(self, row: Json) -> None:
        with div("stack tight"):
            tag("b", row["name"] or "(no name)", classes="break")
            note = " · your current key" if row["id"] == self._own else ""
            tag("span", f"lg-{row['id']}-…{note}", classes="muted small mono break")

    def _acts(self, row: Json) -> None:
        name = row["name"] or row["id"]
        with div("row-of"):
            if row["revoked_at"] is None and not formats.is_past(row["expires_at"]):
                button("Limits", lambda: self._limit(row), "small quiet", label=f"Limits of {name}")
                button("Rotate", lambda: self._rotate(row), "small", label=f"Rotate {name}")
                button("Revoke", lambda: self._revoke(row), "small quiet danger", label=f"Revoke {name}")

    def _make(self) -> None:
        async def save() -> None:
            body: Json = {"name": name.value or "", "scopes": scopes.value}
            if days.value:
                ends = datetime.now(UTC) + timedelta(days=float(days.value))
                body["expires_at"] = ends.isoformat(timespec="seconds")
            await self._obtain(self._at, body, dialog, "Your new key")

        with open_dialog("New key") as dialog:
            name = text_field("Name", hint="The key's owner or purpose")
            scopes = choice_field("Scopes", SCOPES, ["all"], multiple=True).props("use-chips")
            days = number_field("Expires after days", minimum=0.01)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Create", save, "primary")

    def _limit(self, row: Json) -> None:
        async def save() -> None:
            work = self._api.patch(path("admin", "v1", "keys", row["id"]), {"limits": limits.body()})
            if await run_and_notify(work, "Saved. The limits apply from the next request."):
                dialog.close()
                await self._list.load()

        with open_dialog(f"Limits of {row['name'] or row['id']}") as dialog:
            muted("These limits apply in addition to the tenant's. Empty means unlimited.")
            with div("controls"):
                limits = LimitFields(row["limits"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    def _rotate(self, row: Json) -> None:
        async def go() -> None:
            url = path("admin", "v1", "keys", row["id"], "rotate")
            body = {"grace_seconds": int(float(hours.value or 0) * 3600)}
            await self._obtain(url, body, dialog, "The new key")

        with open_dialog(f"Rotate {row['name'] or row['id']}") as dialog:
            muted(
                "A new key replaces this one. The old key keeps working for a while, so that programs can be updated."
            )
            hours = number_field("Hours until the old key stops working", 24)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Rotate", go, "primary")

    async def _obtain(self, url: str, body: Json, dialog: ui.dialog, title: str) -> None:
        made: list[Json] = []

        async def ask() -> None:
            made.append(await self._api.post(url, body))

        if await run_and_notify(ask()):
            dialog.close()
            _show_secret(title, made[0]["secret"])
            await self._list.load()

    def _revoke(self, row: Json) -> None:
        async def go() -> None:
            if await run_and_notify(self._api.delete(path("admin", "v1", "keys", row["id"])), "The key was revoked."):
                await self._list.load()

        name = row["name"] or row["id"]
        if row["id"] == self._own:
            notify_error("You are signed in with this key. Sign in with another one to revoke it.")
            return
        confirm(
            f"Revoke {name}?", "Programs that use it are rejected immediately. This cannot be undone.", "Revoke", go
        )


def _show_secret(title: str, secret: str) -> None:
    with open_dialog(title) as dialog:
        dialog.props("persistent")
        muted("Copy the key now. It will not be shown again.")
        with div("secret"):
            tag("code", secret)
            button("Copy", lambda: copy(secret), "small", label="Copy the key")
        with div("row-of apart"):
            tag("span")
            button("Done", dialog.close, "primary")


def _state(row: Json) -> None:
    if row["revoked_at"] is not None:
        state_chip("revoked")
    elif formats.is_past(row["expires_at"]):
        state_chip("expired")
    elif row["expires_at"] is not None:
        state_chip("expiring")
    else:
        state_chip("active")


def _scopes(row: Json) -> None:
    with div("row-of"):
        for scope in row["scopes"]:
            chip(scope)
