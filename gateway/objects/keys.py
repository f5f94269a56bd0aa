"""The keys of tenants and of operators, and the caller that a key identifies."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.auth import admin_keys as stored
from loragate.adapter_store.auth import api_key, principal
from loragate.adapter_store.auth.principal import Principal, TenantPrincipal
from loragate.adapter_store.timestamps import rfc3339
from loragate.gateway.objects.adapters import Limits, limits_object
from loragate.gateway.objects.common import Moment, Page

Scope = Literal["all", "inference", "adapters:read", "adapters:write", "finetune", "train", "usage", "export", "admin"]


class ApiKey(TypedDict):
    """A key without its secret."""

    id: str
    object: Literal["api_key"]
    tenant_id: str
    name: str
    scopes: list[Scope]
    limits: Limits
    expires_at: Moment | None
    revoked_at: Moment | None
    rotated_from: str | None
    last_used_at: Moment | None
    created_at: Moment


class NewApiKey(ApiKey):
    """A new key. `secret` is the key itself, which is shown only this once; send it as `Authorization: Bearer …`."""

    secret: str


class ApiKeyList(Page):
    """Newest first, including revoked keys."""

    data: list[ApiKey]


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


class DeletedObject(TypedDict):
    """Confirms that the tenant or key was deleted."""

    id: str
    object: Literal["tenant", "api_key", "admin_key"]
    deleted: Literal[True]


class OwnTenant(TypedDict):
    """The tenant that a key belongs to."""

    id: str
    name: str


class Caller(TypedDict):
    """The tenant and the scopes of a key. The operator has no tenant, no key id and no scopes. `merged_exports` is true
    if the key has the scope `export` and this installation exports merged models."""

    object: Literal["caller"]
    role: Literal["operator", "tenant"]
    tenant: OwnTenant | None
    key_id: str | None
    scopes: list[Scope]
    merged_exports: bool


def key_object(key: api_key.ApiKey) -> ApiKey:
    """Return a key without its secret."""
    return {
        "id": key.id,
        "object": "api_key",
        "tenant_id": key.tenant_id,
        "name": key.name,
        "scopes": [scope.value for scope in key.scopes],
        "limits": limits_object(key.limits),
        "expires_at": rfc3339(key.expires_at),
        "revoked_at": rfc3339(key.revoked_at),
        "rotated_from": key.rotated_from,
        "last_used_at": rfc3339(key.last_used_at),
        "created_at": rfc3339(key.created_at),
    }


def new_key_object(new: api_key.NewApiKey) -> NewApiKey:
    """Return a new key, with its secret."""
    return {**key_object(new.key), "secret": new.secret}


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


def deleted_object(object_: Literal["tenant", "api_key", "admin_key"], id_: str) -> DeletedObject:
    """Return the confirmation that a tenant or a key was deleted."""
    return {"id": id_, "object": object_, "deleted": True}


def caller_object(caller: Principal, *, exports: bool) -> Caller:
    """Return the caller. `exports`: the installation exports merged models."""
    if not isinstance(caller, TenantPrincipal):
        return {
            "object": "caller",
            "role": "operator",
            "tenant": None,
            "key_id": None,
            "scopes": [],
            "merged_exports": False,
        }
    return {
        "object": "caller",
        "role": "tenant",
        "tenant": {"id": caller.tenant_id, "name": caller.tenant_name},
        "key_id": caller.key_id,
        "scopes": sorted(scope.value for scope in caller.scopes),
        "merged_exports": exports and caller.allows(principal.Scope.EXPORT),
    }
