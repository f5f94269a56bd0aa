"""Answers about tenants, their keys, and what was done to them."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.adapters import Adapter, Limits
from loragate.gateway.openapi.shapes.common import Count, Moment, Page

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
    """A tenant's adapter. `keep` says where every engine should have what its aliases point at; null: where it may."""

    tenant_id: str
    keep: Literal["device", "disk"] | None
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


class DeletedThing(TypedDict):
    """It is gone."""

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
