"""Adapters, their versions and their aliases."""

from collections.abc import Sequence
from typing import Any

from loragate.adapter_store.adapters.adapter import Adapter, AdapterVersion, AliasTarget
from loragate.adapter_store.adapters.lineage import Lineage
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.wire.common import limits_object, rfc3339


def adapter_object(adapter: Adapter, holdings: Holdings) -> dict[str, Any]:
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


def admin_adapter_object(adapter: Adapter, holdings: Holdings, engine_id: str) -> dict[str, Any]:
    """The same as the operator sees it: whose it is, where it is to be kept, and which engine holds what of it."""
    held = [
        {"engine_id": engine_id, "version": version, "tier": tier, "pinned": holdings.pinned(adapter.tenant_id, digest)}
        for version, digest in sorted(adapter.routed.items())
        if (tier := holdings.tier(adapter.tenant_id, [digest])) not in (None, "none")
    ]
    return {**adapter_object(adapter, holdings), "tenant_id": adapter.tenant_id, "keep": adapter.keep, "held": held}


def version_object(version: AdapterVersion, residency: str | None) -> dict[str, Any]:
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


def lineage_object(lineage: Lineage) -> dict[str, Any]:
    """Where a version came from."""
    return {
        "source": lineage.source,
        "dataset_digest": lineage.dataset_digest,
        "parent_version": lineage.parent_version,
        "evaluation": dict(lineage.evaluation),
        "notes": lineage.notes,
    }


def alias_object(name: str, alias: str, targets: Sequence[AliasTarget]) -> dict[str, Any]:
    """One alias of the adapter `name`."""
    return {
        "id": f"{name}@{alias}",
        "object": "adapter.alias",
        "name": name,
        "alias": alias,
        "targets": alias_targets(targets),
    }


def alias_targets(targets: Sequence[AliasTarget]) -> list[dict[str, int]]:
    """As they are written in a PUT."""
    return [{"version": target.version, "weight": target.weight} for target in targets]
