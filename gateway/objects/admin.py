"""Tenants, their keys, the operator's view of adapters, and the audit log."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.audit import log as audit_log
from loragate.adapter_store.auth import api_key
from loragate.adapter_store.tenants import tenant as stored
from loragate.gateway.objects.adapters import Adapter, Limits
from loragate.gateway.objects.common import Count, Moment, Page, limits_object, rfc3339

Facts = Annotated[dict[str, Any] | None, Field(description="The fields that changed; null where there was nothing.")]

Scope = Literal["all", "inference", "adapters:read", "adapters:write", "finetune", "usage", "admin"]


class TenantLimits(Limits):
    """A tenant's. Null is unlimited."""

    max_adapters: Count | None
    max_storage_bytes: Count | None
    max_adapter_rank: Count | None
    max_unfinished_jobs: Count | None


class Tenant(TypedDict):
    """`weight` is its share of a busy engine, relative to other tenants'."""

    id: str
    object: Literal["tenant"]
    name: str
    weight: float
    limits: TenantLimits
    created_at: Moment
    updated_at: Moment


class HeldVersion(TypedDict):
    """A version that an alias points at, on an engine."""

    engine_id: str
    version: Count
    tier: Literal["device", "host", "disk"]
    pinned: bool


class AdminAdapter(Adapter):
    """A tenant's adapter. `placement` says where every engine holds the versions that its aliases point at: `pinned` to
    the device, `prefetched` to the disk, or null, as they are used."""

    tenant_id: str
    placement: Literal["pinned", "prefetched"] | None
    held: list[HeldVersion]


class AdminAdapterList(Page):
    """Newest first."""

    data: list[AdminAdapter]


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
    """A key at the one moment when it is shown: `secret` is what `Authorization` takes."""

    secret: str


class TenantList(Page):
    """Newest first."""

    data: list[Tenant]


class ApiKeyList(Page):
    """Newest first, revoked ones too."""

    data: list[ApiKey]


class DeletedObject(TypedDict):
    """A deleted tenant or a revoked key."""

    id: str
    object: Literal["tenant", "api_key"]
    deleted: Literal[True]


class AuditEvent(TypedDict):
    """One act: who did what, to what."""

    id: str
    object: Literal["audit.event"]
    created_at: Moment
    actor: str
    action: str
    target: str
    tenant_id: str | None
    before: Facts
    after: Facts
    request_id: str | None


class AuditEventList(Page):
    """Newest first."""

    data: list[AuditEvent]


def tenant_object(tenant: stored.Tenant) -> dict[str, Any]:
    """A tenant."""
    return {
        "id": tenant.id,
        "object": "tenant",
        "name": tenant.name,
        "weight": tenant.weight,
        "limits": limits_object(tenant.limits),
        "created_at": rfc3339(tenant.created_at),
        "updated_at": rfc3339(tenant.updated_at),
    }


def key_object(key: api_key.ApiKey) -> dict[str, Any]:
    """A key without its secret."""
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


def new_key_object(new: api_key.NewApiKey) -> dict[str, Any]:
    """A key at the one moment when its secret is shown."""
    return {**key_object(new.key), "secret": new.secret}


def audit_object(event: audit_log.AuditEvent) -> dict[str, Any]:
    """One act."""
    return {
        "id": event.id,
        "object": "audit.event",
        "created_at": rfc3339(event.created_at),
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "tenant_id": event.tenant_id,
        "before": event.before,
        "after": event.after,
        "request_id": event.request_id,
    }
