"""Tenants, the operator's view of adapters, and the audit log."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.adapters import adapter as adapters
from loragate.adapter_store.audit import log as audit_log
from loragate.adapter_store.tenants import tenant as stored
from loragate.adapter_store.timestamps import rfc3339
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.objects.adapters import Adapter, Limits, adapter_object, limits_object
from loragate.gateway.objects.common import Count, Moment, Page

Facts = Annotated[
    dict[str, Any] | None, Field(description="The values of the fields that changed; null if the object did not exist.")
]

Placement = Literal["pinned", "prefetched"]


class TenantLimits(Limits):
    """The limits of a tenant. Null means unlimited."""

    max_adapters: Count | None
    max_storage_bytes: Count | None
    max_objects: Count | None
    max_adapter_rank: Count | None
    max_unfinished_jobs: Count | None
    max_job_training_tokens: Count | None
    max_job_training_seconds: Count | None
    training_tokens_per_minute: Count | None
    training_tokens_per_day: Count | None
    training_tokens_per_month: Count | None
    training_seconds_per_day: Count | None
    training_seconds_per_month: Count | None
    max_unfinished_batches: Count | None
    max_batch_lines: Count | None
    max_batch_bytes: Count | None
    batch_tokens_per_day: Count | None
    max_training_sessions: Count | None
    max_training_runs: Count | None
    max_stored_responses: Count | None


class Tenant(TypedDict):
    """A tenant. `weight` is its share of a busy engine, relative to the weights of other tenants."""

    id: str
    object: Literal["tenant"]
    name: str
    weight: float
    limits: TenantLimits
    signers: Annotated[
        list[str],
        Field(description="One of them must have signed what it publishes; none: the server's policy."),
    ]
    store_responses_by_default: bool
    created_at: Moment
    updated_at: Moment


class HeldVersion(TypedDict):
    """A version that an alias points to, held by an engine."""

    engine_id: str
    version: Count
    tier: Literal["device", "host", "disk"]
    pinned: bool


class AdminAdapter(Adapter):
    """A tenant's adapter. `placement` says where every engine holds the versions that its aliases point to: `pinned` to
    the device, `prefetched` to the disk, or null for wherever their use puts them."""

    tenant_id: str
    placement: Placement | None
    held: list[HeldVersion]


class AdminAdapterList(Page):
    """Newest first."""

    data: list[AdminAdapter]


class TenantList(Page):
    """Newest first."""

    data: list[Tenant]


class AuditEvent(TypedDict):
    """A recorded action: who did what to what."""

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


def admin_adapter_object(adapter: adapters.Adapter, holdings: Holdings) -> AdminAdapter:
    """Return an adapter as the operator sees it: with its tenant, its placement and the engines that hold it."""
    held: list[HeldVersion] = [
        {"engine_id": each.engine_id, "version": version, "tier": each.tier, "pinned": each.pinned}
        for version, digest in sorted(adapter.routed.items())
        for each in holdings.engines(adapter.tenant_id, digest)
    ]
    return {
        **adapter_object(adapter, holdings),
        "tenant_id": adapter.tenant_id,
        "placement": cast(Placement | None, adapter.placement),
        "held": held,
    }


def tenant_object(tenant: stored.Tenant) -> Tenant:
    """Return a tenant."""
    limits = tenant.limits
    return {
        "id": tenant.id,
        "object": "tenant",
        "name": tenant.name,
        "weight": tenant.weight,
        "limits": {
            **limits_object(limits),
            "max_adapters": limits.max_adapters,
            "max_storage_bytes": limits.max_storage_bytes,
            "max_objects": limits.max_objects,
            "max_adapter_rank": limits.max_adapter_rank,
            "max_unfinished_jobs": limits.max_unfinished_jobs,
            "max_job_training_tokens": limits.max_job_training_tokens,
            "max_job_training_seconds": limits.max_job_training_seconds,
            "training_tokens_per_minute": limits.training_tokens_per_minute,
            "training_tokens_per_day": limits.training_tokens_per_day,
            "training_tokens_per_month": limits.training_tokens_per_month,
            "training_seconds_per_day": limits.training_seconds_per_day,
            "training_seconds_per_month": limits.training_seconds_per_month,
            "max_unfinished_batches": limits.max_unfinished_batches,
            "max_batch_lines": limits.max_batch_lines,
            "max_batch_bytes": limits.max_batch_bytes,
            "batch_tokens_per_day": limits.batch_tokens_per_day,
            "max_training_sessions": limits.max_training_sessions,
            "max_training_runs": limits.max_training_runs,
            "max_stored_responses": limits.max_stored_responses,
        },
        "signers": list(tenant.signers),
        "store_responses_by_default": tenant.store_responses_by_default,
        "created_at": rfc3339(tenant.created_at),
        "updated_at": rfc3339(tenant.updated_at),
    }


def audit_object(event: audit_log.AuditEvent) -> AuditEvent:
    """Return an event of the audit log."""
    return {
        "id": event.id,
        "object": "audit.event",
        "created_at": rfc3339(event.created_at),
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "tenant_id": event.tenant_id,
        "before": None if event.before is None else dict(event.before),
        "after": None if event.after is None else dict(event.after),
        "request_id": event.request_id,
    }
