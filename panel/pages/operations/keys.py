"""A tenant's keys: made, shown once, replaced, revoked."""

from datetime import UTC, datetime, timedelta

from nicegui import ui

from loragate.panel.api import Api, Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.fields import choice_field, number_field, text_field
from loragate.panel.parts.controls.limit_fields import LimitFields
from loragate.panel.parts.dialog import confirm, sheet
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.chip import chip, state_chip
from loragate.panel.parts.display.code import copy
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.listing import ROWS, Listing
from loragate.panel.parts.notify import attempt, wrong

SCOPES = {
    "all": "all but managing keys",
    "inference": "ask models",
    "adapters:read": "see adapters",
    "adapters:write": "change adapters",
    "finetune": "train adapters",
    "usage": "see usage",
    "admin": "manage keys",
}


def draw(here: Here) -> None:
    """The caller's own tenant's."""
    assert here.caller.tenant_id is not None
    if not here.caller.may("admin"):
        with div("head"):
            heading("Keys")
        with div("card"), empty("o_lock", "Not with this key", "Keys are managed with one that has the scope “admin”."):
            muted("Ask whoever runs this server for one, or for another key.")
        return
    Keys(here.api, here.caller.tenant_id, own=here.caller.key_id).draw()


class Keys:
    """Those of one tenant; `own` is the one that is signed in with."""

    def __init__(self, api: Api, tenant_id: str, *, own: str | None = None) -> None:
        self._api = api
        self._at = path("admin", "v1", "tenants", tenant_id, "keys")
        self._own = own
        self._list: Listing

    def draw(self, *, level: int = 1) -> None:
        """A page's worth, or a part of one."""
        with div("head"):
            words = "Each opens what its scopes say. A secret is shown once, when it is made."
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
            Column[Json]("Ends", lambda row: formats.moment(row["expires_at"]), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        table("Keys", columns, page["data"])

    def _nothing(self) -> None:
        with empty("o_key", "No keys yet", "Programs sign their requests with one."):
            button("Make the first one", self._make, "primary")

    def _name(self, row: Json) -> None:
        with div("stack tight"):
            tag("b", row["name"] or "(no name)", classes="break")
            here = " · the one you signed in with" if row["id"] == self._own else ""
            tag("span", f"lg-{row['id']}-…{here}", classes="muted small mono break")

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

        with sheet("A new key") as dialog:
            name = text_field("Name", hint="For whom or what it is")
            scopes = choice_field("Scopes", SCOPES, ["all"], multiple=True).props("use-chips")
            days = number_field("Ends after days", least=0.01)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Make it", save, "primary")

    def _limit(self, row: Json) -> None:
        async def save() -> None:
            work = self._api.patch(path("admin", "v1", "keys", row["id"]), {"limits": limits.body()})
            if await attempt(work, "Saved. It holds from the next request on."):
                dialog.close()
                await self._list.load()

        with sheet(f"Limits of {row['name'] or row['id']}") as dialog:
            muted("They hold beside the tenant's own. An empty field is unlimited.")
            with div("controls"):
                limits = LimitFields(row["limits"])
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Save", save, "primary")

    def _rotate(self, row: Json) -> None:
        async def go() -> None:
            url = path("admin", "v1", "keys", row["id"], "rotate")
            body = {"grace_seconds": int(float(hours.value or 0) * 3600)}
            await self._obtain(url, body, dialog, "The key in its place")

        with sheet(f"Rotate {row['name'] or row['id']}") as dialog:
            muted("A new key takes its place. The old one works on for a while, so that programs can change over.")
            hours = number_field("The old one works for hours", 24)
            with div("row-of apart"):
                button("Cancel", dialog.close)
                button("Rotate", go, "primary")

    async def _obtain(self, url: str, body: Json, dialog: ui.dialog, title: str) -> None:
        made: list[Json] = []

        async def ask() -> None:
            made.append(await self._api.post(url, body))

        if await attempt(ask()):
            dialog.close()
            _show_secret(title, made[0]["secret"])
            await self._list.load()

    def _revoke(self, row: Json) -> None:
        async def go() -> None:
            if await attempt(self._api.delete(path("admin", "v1", "keys", row["id"])), "It is revoked."):
                await self._list.load()

        name = row["name"] or row["id"]
        if row["id"] == self._own:
            wrong("This is the key that you signed in with: sign in with another one to revoke it.")
            return
        confirm(f"Revoke {name}?", "Programs that use it are refused at once. This cannot be undone.", "Revoke", go)


def _show_secret(title: str, secret: str) -> None:
    with sheet(title) as dialog:
        dialog.props("persistent")
        muted("Copy it now: it is not shown again.")
        with div("secret"):
            tag("code", secret)
            button("Copy", lambda: copy(secret), "small", label="Copy the key")
        with div("row-of apart"):
            tag("span")
            button("I have it", dialog.close, "primary")


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
