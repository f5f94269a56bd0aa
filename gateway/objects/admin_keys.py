"""Named admin keys."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.auth import admin_keys as stored
from loragate.adapter_store.timestamps import rfc3339
from loragate.gateway.objects.common import Moment, Page


class AdminKey(TypedDict):
    """An operator's key without its secret."""

    id: str
    object: Literal["admin_key"]
    name: str
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None
    created_at: Moment


class NewAdminKey(AdminKey):
    """A new admin key. `secret` is the key itself, shown only this once; send it as `Authorization: Bearer …`."""

    secret: str


class AdminKeyList(Page):
    """Newest first, including revoked keys."""

    data: list[AdminKey]


def admin_key_object(key: stored.AdminKey) -> AdminKey:
    """Return an admin key without its secret."""
    return {
        "id": key.id,
        "object": "admin_key",
        "name": key.name,
        "expires_at": rfc3339(key.expires_at),
        "revoked_at": rfc3339(key.revoked_at),
        "last_used_at": rfc3339(key.last_used_at),
        "created_at": rfc3339(key.created_at),
    }


def new_admin_key_object(new: stored.NewAdminKey) -> NewAdminKey:
    """Return a new admin key, with its secret."""
    return {**admin_key_object(new.key), "secret": new.secret}
