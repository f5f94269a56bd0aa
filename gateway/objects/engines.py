"""Engines and the server's health, as the operator and probes see them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.timestamps import rfc3339
from loragate.engine.fleet.member import Member
from loragate.gateway.engine.adapter_names import Names, content_of
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.objects.common import Count, Digest, Moment, Page, Residency
from loragate.v1 import engine_pb2 as pb


class Health(TypedDict):
    """The process is alive."""

    status: Literal["ok"]


class Version(TypedDict):
    """The version of loragate."""

    version: str


class Readiness(TypedDict):
    """`parts` has "ok", "degraded" or a reason for each part of the server; `degraded` has the reasons why parts are
    degraded."""

    status: Literal["ready", "not ready"]
    parts: dict[str, str]
    degraded: dict[str, str]


class BatchStats(TypedDict):
    """The number of sequences in the batch."""

    running: Count


class QueueStats(TypedDict):
    """The number of waiting requests, and of those among them whose adapter is not loaded yet."""

    waiting: Count
    waiting_for_adapter: Count


class Capacity(TypedDict):
    """Used and total capacity."""

    used: Count
    total: Count


class AdapterBytes(TypedDict):
    """Bytes of adapters, by tier."""

    device: Capacity
    host: Capacity
    disk: Capacity


class StepSeconds(TypedDict):
    """Durations of the last `steps` steps."""

    steps: Count
    p50: float
    p90: float
    p99: float


class NamedVersion(TypedDict):
    """A name and version of these weights."""

    name: str
    version: Count


class AdapterRef(TypedDict):
    """An adapter on an engine. `id` is opaque; `tenant_id` and `digest` are null for the base model itself."""

    id: str
    tenant_id: str | None
    digest: str | None
    versions: list[NamedVersion]


class Resident(AdapterRef):
    """An adapter that is loaded on the device."""

    slot: int
    running: Count
    pinned: bool


class TenantQueue(TypedDict):
    """Completions of one tenant, in the batch and waiting. `name` is null if it is not known."""

    tenant_id: str
    name: str | None
    running: Count
    waiting: Count


class Engine(TypedDict):
    """An engine's model, load and statistics; fields are null if their value is not known."""

    id: str
    object: Literal["engine"]
    state: Literal["ready", "unreachable", "rejected"]
    reason: Annotated[str | None, Field(description="Why it is not used, if it is not.")]
    target: str
    requests: Annotated[Count, Field(description="Requests of the answering gateway process on it.")]
    model: str | None
    base_digest: Digest | None
    device: str | None
    dtype: str | None
    max_model_len: Count | None
    notes: list[str]
    started_at: Moment | None
    batch: BatchStats | None
    queue: QueueStats | None
    tenants: Annotated[list[TenantQueue], Field(description="At most 256, those with the longest queues first.")]
    kv_blocks: Capacity | None
    adapter_slots: Capacity | None
    adapter_bytes: AdapterBytes | None
    step_seconds: StepSeconds | None
    residents: list[Resident]


class EngineList(Page):
    """All engines, in one page."""

    data: list[Engine]


class EngineAdapter(AdapterRef):
    """Statistics of one adapter since the engine started."""

    object: Literal["engine.adapter"]
    requests: Count
    prompt_tokens: Count
    generated_tokens: Count
    mean_queue_seconds: float | None
    mean_time_to_first_token_seconds: float | None
    loads: Count
    residency: Residency | None


class EngineAdapterList(Page):
    """Ordered by opaque id."""

    data: list[EngineAdapter]


def engine_object(
    member: Member,
    base: pb.Manifest | None,
    stats: pb.StatsResponse | None,
    names: Names,
    tenants: Mapping[str, str],
) -> Engine:
    """Return an engine, with null for what is not known. `base` is the manifest seen last; `tenants` holds names by
    id."""
    manifest = member.manifest or base
    engine: Engine = {
        "id": member.id,
        "object": "engine",
        "state": "rejected" if member.rejection else "unreachable",
        "reason": None if member.ready else member.state,
        "target": member.address.target,
        "requests": member.requests,
        "model": manifest.model_id if manifest else None,
        "base_digest": manifest.base_digest if manifest else None,
        "device": manifest.device if manifest else None,
        "dtype": manifest.dtype if manifest else None,
        "max_model_len": manifest.max_model_len if manifest else None,
        "notes": list(manifest.notes) if manifest else [],
        "started_at": None,
        "batch": None,
        "queue": None,
        "tenants": [],
        "kv_blocks": None,
        "adapter_slots": None,
        "adapter_bytes": None,
        "step_seconds": None,
        "residents": [],
    }
    if stats is None:
        return engine
    steps = stats.recent_steps
    return {
        **engine,
        "state": "rejected" if member.rejection else "ready",
        "started_at": rfc3339(datetime.fromtimestamp(stats.started_at, UTC)),
        "batch": {"running": stats.running},
        "queue": {"waiting": stats.waiting, "waiting_for_adapter": stats.waiting_for_adapter},
        "tenants": [_tenant(each, tenants.get(each.tenant_id)) for each in stats.tenants],
        "kv_blocks": {"used": stats.kv_blocks_used, "total": stats.kv_blocks_total},
        "adapter_slots": {"used": stats.slots_used, "total": stats.slots_total},
        "adapter_bytes": {
            "device": _capacity(stats.adapter_device),
            "host": _capacity(stats.adapter_host),
            "disk": _capacity(stats.adapter_disk),
        },
        "step_seconds": {"steps": steps.steps, "p50": steps.p50, "p90": steps.p90, "p99": steps.p99},
        "residents": [_resident(resident, names) for resident in stats.residents],
    }


def adapter_row_object(row: pb.AdapterRow, names: Names, holdings: Holdings) -> EngineAdapter:
    """Return what one adapter, or the base model without an adapter, has served, and which tier holds it."""
    residency = holdings.tier(row.adapter.tenant_id, [row.adapter.digest]) if row.HasField("adapter") else None
    first_token = row.time_to_first_token_seconds / row.first_tokens if row.first_tokens else None
    return {
        **_adapter(row.id, row.adapter, names),
        "object": "engine.adapter",
        "requests": row.requests,
        "prompt_tokens": row.prompt_tokens,
        "generated_tokens": row.generated_tokens,
        "mean_queue_seconds": row.queue_seconds / row.started if row.started else None,
        "mean_time_to_first_token_seconds": first_token,
        "loads": row.loads,
        "residency": residency,
    }


def _tenant(demand: pb.TenantDemand, name: str | None) -> TenantQueue:
    return {"tenant_id": demand.tenant_id, "name": name, "running": demand.running, "waiting": demand.waiting}


def _resident(resident: pb.Resident, names: Names) -> Resident:
    return {
        **_adapter(resident.id, resident.adapter, names),
        "slot": resident.slot,
        "running": resident.sequences,
        "pinned": resident.pinned,
    }


def _adapter(opaque_id: str, adapter: pb.AdapterRef, names: Names) -> AdapterRef:
    return {
        "id": opaque_id,
        "tenant_id": adapter.tenant_id or None,
        "digest": adapter.digest or None,
        "versions": [{"name": each.name, "version": each.version} for each in names.get(content_of(adapter), ())],
    }


def _capacity(room: pb.Room) -> Capacity:
    return {"used": room.used_bytes, "total": room.total_bytes}
