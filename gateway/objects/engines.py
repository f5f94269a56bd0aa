"""Engines, as the operator sees them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.engine.adapter_names import Names, content_of
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.objects.common import Count, Digest, Moment, Page, Residency, rfc3339
from loragate.v1 import engine_pb2 as pb


class BatchStats(TypedDict):
    """Sequences in the batch."""

    running: Count


class QueueStats(TypedDict):
    """Waiting requests, and those of them whose adapter is not on the device yet."""

    waiting: Count
    waiting_for_adapter: Count


class Capacity(TypedDict):
    """A used amount and its limit."""

    used: Count
    total: Count


class AdapterBytes(TypedDict):
    """Bytes of adapters by tier."""

    device: Capacity
    host: Capacity
    disk: Capacity


class StepSeconds(TypedDict):
    """Of the last steps."""

    steps: Count
    p50: float
    p90: float
    p99: float


class NamedVersion(TypedDict):
    """A name that these weights have."""

    name: str
    version: Count


class AdapterRef(TypedDict):
    """An adapter's weights under their opaque `id`; `base` is the base model alone."""

    id: str
    tenant_id: str | None
    digest: str | None
    versions: list[NamedVersion]


class Resident(AdapterRef):
    """An adapter on the device."""

    slot: int
    running: Count
    pinned: bool


class TenantQueue(TypedDict):
    """Completions of one tenant, in the batch and waiting; `name` is null where it is not known."""

    tenant_id: str
    name: str | None
    running: Count
    waiting: Count


class Engine(TypedDict):
    """What it serves and is doing; null where nothing is known."""

    id: str
    object: Literal["engine"]
    state: Literal["ready", "unreachable"]
    model: str | None
    base_digest: Digest | None
    device: str | None
    dtype: str | None
    max_model_len: Count | None
    notes: list[str]
    started_at: Moment | None
    batch: BatchStats | None
    queue: QueueStats | None
    tenants: Annotated[list[TenantQueue], Field(description="Those with the longest queues first, at most 256.")]
    kv_blocks: Capacity | None
    adapter_slots: Capacity | None
    adapter_bytes: AdapterBytes | None
    step_seconds: StepSeconds | None
    residents: list[Resident]


class EngineList(Page):
    """All engines."""

    data: list[Engine]


class EngineAdapter(AdapterRef):
    """What one adapter has served since the engine's start."""

    object: Literal["engine.adapter"]
    requests: Count
    prompt_tokens: Count
    generated_tokens: Count
    mean_queue_seconds: float | None
    mean_time_to_first_token_seconds: float | None
    loads: Count
    residency: Residency | None


class EngineAdapterList(Page):
    """By opaque id."""

    data: list[EngineAdapter]


def engine_object(
    engine_id: str,
    manifest: pb.Manifest | None,
    stats: pb.StatsResponse | None,
    names: Names,
    tenants: Mapping[str, str],
) -> dict[str, Any]:
    """What it serves, and what it is doing; null where nothing is known. `tenants` are names by id."""
    return {
        "id": engine_id,
        "object": "engine",
        "state": "unreachable" if stats is None else "ready",
        "model": manifest and manifest.model_id,
        "base_digest": manifest and manifest.base_digest,
        "device": manifest and manifest.device,
        "dtype": manifest and manifest.dtype,
        "max_model_len": manifest and manifest.max_model_len,
        "notes": list(manifest.notes) if manifest else [],
        **_activity(stats, names, tenants),
    }


def adapter_row_object(row: pb.AdapterRow, names: Names, holdings: Holdings) -> dict[str, Any]:
    """What one adapter, or the base model alone, has served, and where it is."""
    residency = holdings.tier(row.adapter.tenant_id, [row.adapter.digest]) if row.HasField("adapter") else None
    return {
        **_adapter(row.id, row.adapter, names),
        "object": "engine.adapter",
        "requests": row.requests,
        "prompt_tokens": row.prompt_tokens,
        "generated_tokens": row.generated_tokens,
        "mean_queue_seconds": row.queue_seconds / row.started if row.started else None,
        "mean_time_to_first_token_seconds": row.time_to_first_token_seconds / row.first_tokens
        if row.first_tokens
        else None,
        "loads": row.loads,
        "residency": residency,
    }


def _activity(stats: pb.StatsResponse | None, names: Names, tenants: Mapping[str, str]) -> dict[str, Any]:
    if stats is None:
        parts = ("started_at", "batch", "queue", "kv_blocks", "adapter_slots", "adapter_bytes", "step_seconds")
        return {**dict.fromkeys(parts), "tenants": [], "residents": []}
    steps = stats.recent_steps
    return {
        "started_at": rfc3339(datetime.fromtimestamp(stats.started_at, UTC)),
        "batch": {"running": stats.running},
        "queue": {"waiting": stats.waiting, "waiting_for_adapter": stats.waiting_for_adapter},
        "tenants": [_tenant(each, tenants.get(each.tenant_id)) for each in stats.tenants],
        "kv_blocks": {"used": stats.kv_blocks_used, "total": stats.kv_blocks_total},
        "adapter_slots": {"used": stats.slots_used, "total": stats.slots_total},
        "adapter_bytes": {
            "device": _room(stats.adapter_device),
            "host": _room(stats.adapter_host),
            "disk": _room(stats.adapter_disk),
        },
        "step_seconds": {"steps": steps.steps, "p50": steps.p50, "p90": steps.p90, "p99": steps.p99},
        "residents": [_resident(resident, names) for resident in stats.residents],
    }


def _tenant(demand: pb.TenantDemand, name: str | None) -> dict[str, Any]:
    return {"tenant_id": demand.tenant_id, "name": name, "running": demand.running, "waiting": demand.waiting}


def _resident(resident: pb.Resident, names: Names) -> dict[str, Any]:
    return {
        **_adapter(resident.id, resident.adapter, names),
        "slot": resident.slot,
        "running": resident.sequences,
        "pinned": resident.pinned,
    }


def _adapter(opaque_id: str, adapter: pb.AdapterRef, names: Names) -> dict[str, Any]:
    return {
        "id": opaque_id,
        "tenant_id": adapter.tenant_id or None,
        "digest": adapter.digest or None,
        "versions": [{"name": each.name, "version": each.version} for each in names.get(content_of(adapter), ())],
    }


def _room(room: pb.Room) -> dict[str, int]:
    return {"used": room.used_bytes, "total": room.total_bytes}
