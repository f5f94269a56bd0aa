"""Adapters, their versions and their aliases."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.adapters import adapter as stored
from loragate.adapter_store.adapters import lineage as stored_lineage
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.objects.common import Count, Digest, Moment, Page, Residency, limits_object, rfc3339


class Limits(TypedDict):
    """Null is unlimited."""

    requests_per_minute: Count | None
    tokens_per_minute: Count | None
    max_concurrency: Count | None
    tokens_per_day: Count | None
    tokens_per_month: Count | None


class AliasTarget(TypedDict):
    """`weight` is relative to those of the other targets."""

    version: Count
    weight: Count


class Adapter(TypedDict):
    """An adapter with its aliases."""

    id: str
    object: Literal["adapter"]
    name: str
    status: Literal["ready", "disabled", "deleted"]
    latest_version: Count | None
    aliases: dict[str, list[AliasTarget]]
    limits: Limits
    tags: list[str]
    description: str
    residency: Residency | None
    created_at: Moment
    updated_at: Moment
    deleted_at: Moment | None


class Lineage(TypedDict):
    """`source` is `upload`, `import` or the id of a fine-tuning job."""

    source: str
    dataset_digest: Digest | None
    parent_version: Count | None
    evaluation: dict[str, float]
    notes: str | None


class AdapterVersion(TypedDict):
    """An immutable version; `id` is its adapter's."""

    id: str
    object: Literal["adapter.version"]
    name: str
    version: Count
    digest: Digest
    status: Literal["verifying", "ready", "disabled", "quarantined", "rejected", "deleted"]
    rank: Count
    size_bytes: Count
    base_model: str
    base_digest: Digest
    residency: Residency | None
    lineage: Lineage
    reason: Annotated[str | None, Field(description="Why it is rejected or quarantined.")]
    created_at: Moment
    deleted_at: Moment | None


class Alias(TypedDict):
    """What an alias points at."""

    id: str
    object: Literal["adapter.alias"]
    name: str
    alias: str
    targets: list[AliasTarget]


class TtftMs(TypedDict):
    """Milliseconds from receipt to the first token, of requests that got one."""

    mean: float
    p50: Count
    p90: Count
    p95: Count
    p99: Count


class AliasTargetMetrics(TypedDict):
    """One version's. `errors` are requests that failed; `weight` is null where the alias points at it no more."""

    version: Count
    weight: Count | None
    requests: Count
    errors: Count
    prompt_tokens: Count
    completion_tokens: Count
    ttft_ms: TtftMs | None


class AliasMetrics(TypedDict):
    """What each version of an alias did between `start` and `end`."""

    id: str
    object: Literal["adapter.alias.metrics"]
    name: str
    alias: str
    start: Moment
    end: Moment
    targets: list[AliasTargetMetrics]


class AdapterList(Page):
    """Newest first."""

    data: list[Adapter]


class AdapterVersionList(Page):
    """Highest number first; the cursor is a version's number."""

    data: list[AdapterVersion]


class AliasList(Page):
    """All of an adapter's, by name."""

    data: list[Alias]


class DeletedAlias(TypedDict):
    """It is gone; `id` is the adapter's."""

    id: str
    object: Literal["adapter.alias"]
    deleted: Literal[True]
    name: str
    alias: str


class DeletedAdapter(TypedDict):
    """It is gone; `version` where it was one."""

    id: str
    object: Literal["adapter", "adapter.version"]
    deleted: Literal[True]
    name: str
    version: NotRequired[Count]


def adapter_object(adapter: stored.Adapter, holdings: Holdings) -> dict[str, Any]:
    """An adapter with its aliases, and where the engine has what they point at."""
    return {
        "id": adapter.id,
        "object": "adapter",
        "name": adapter.name,
        "status": adapter.status.value,
        "latest_version": adapter.latest_version,
        "aliases": {name: alias_targets(targets) for name, targets in adapter.aliases.items()},
        "limits": limits_object(adapter.limits),
        "tags": list(adapter.description.tags),
        "description": adapter.description.text,
        "residency": holdings.tier(adapter.tenant_id, adapter.routed.values()),
        "created_at": rfc3339(adapter.created_at),
        "updated_at": rfc3339(adapter.updated_at),
        "deleted_at": rfc3339(adapter.deleted_at),
    }


def admin_adapter_object(adapter: stored.Adapter, holdings: Holdings, engine_id: str) -> dict[str, Any]:
    """The same as the operator sees it: whose it is, where it is placed, and which engine holds what of it."""
    held = [
        {"engine_id": engine_id, "version": version, "tier": tier, "pinned": holdings.pinned(adapter.tenant_id, digest)}
        for version, digest in sorted(adapter.routed.items())
        if (tier := holdings.tier(adapter.tenant_id, [digest])) not in (None, "none")
    ]
    operators = {"tenant_id": adapter.tenant_id, "placement": adapter.placement, "held": held}
    return {**adapter_object(adapter, holdings), **operators}


def version_object(version: stored.AdapterVersion, residency: str | None) -> dict[str, Any]:
    """One version; `id` is its adapter's. `residency` says where the engine has it."""
    return {
        "id": version.adapter_id,
        "object": "adapter.version",
        "name": version.name,
        "version": version.version,
        "digest": version.digest,
        "status": version.status.value,
        "rank": version.rank,
        "size_bytes": version.size_bytes,
        "base_model": version.base_model,
        "base_digest": version.base_digest,
        "residency": residency,
        "lineage": lineage_object(version.lineage),
        "reason": version.reason,
        "created_at": rfc3339(version.created_at),
        "deleted_at": rfc3339(version.deleted_at),
    }


def lineage_object(lineage: stored_lineage.Lineage) -> dict[str, Any]:
    """Where a version came from."""
    return {
        "source": lineage.source,
        "dataset_digest": lineage.dataset_digest,
        "parent_version": lineage.parent_version,
        "evaluation": dict(lineage.evaluation),
        "notes": lineage.notes,
    }


def alias_object(name: str, alias: str, targets: Sequence[stored.AliasTarget]) -> dict[str, Any]:
    """One alias of the adapter `name`."""
    return {
        "id": f"{name}@{alias}",
        "object": "adapter.alias",
        "name": name,
        "alias": alias,
        "targets": alias_targets(targets),
    }


def alias_targets(targets: Sequence[stored.AliasTarget]) -> list[dict[str, int]]:
    """As they are written in a PUT."""
    return [{"version": target.version, "weight": target.weight} for target in targets]
