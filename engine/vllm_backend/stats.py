"""The backend's statistics as protobuf messages. Of vLLM's own steps and blocks nothing is known here."""

from loragate.engine.adapters.files import AdapterFiles
from loragate.engine.metrics.counters import EngineMetrics
from loragate.engine.server import stats as common
from loragate.engine.vllm_backend.adapter_slots import AdapterSlots
from loragate.engine.vllm_backend.plain_adapter import PlainAdapter
from loragate.engine.vllm_backend.request_queue import RequestQueue
from loragate.v1 import engine_pb2 as pb


def build_stats(
    metrics: EngineMetrics,
    queue: RequestQueue,
    slots: AdapterSlots,
    files: AdapterFiles[PlainAdapter],
    request: pb.StatsRequest,
) -> pb.StatsResponse:
    """Return counters and gauges as of now."""
    residents = _residents(slots)
    demand = common.build_demand(metrics, queue.seated)
    stats = common.metrics_stats(metrics)
    gauges = pb.StatsResponse(
        running=len(queue.seated),
        waiting=len(queue.waiting),
        waiting_for_adapter=common.waiting_for_adapter(demand, residents),
        slots_used=slots.used,
        slots_total=slots.total,
        adapter_loads=slots.loads,
        adapter_evictions=slots.evictions,
        adapter_reads=slots.reads,
        backlog_seconds=queue.backlog.seconds,
        residents=residents,
        cached=common.cached_adapters((), files.recent(common.MAX_CACHED), residents),
        adapter_disk=common.room_message(files.tier.used, files.tier.budget),
        demand=demand[: common.MAX_DEMAND],
        tenants=map(common.tenant_message, queue.tenants()[: common.MAX_DEMAND]) if request.tenants else (),
    )
    stats.MergeFrom(gauges)
    common.add_adapter_rows(stats, metrics, request)
    return stats


def build_inventory(slots: AdapterSlots, files: AdapterFiles[PlainAdapter]) -> pb.InventoryResponse:
    """Return the adapters that the engine holds, by tier."""
    tiers = dict.fromkeys(files.keys(), pb.TIER_DISK)
    tiers |= dict.fromkeys((place.key for place in slots.places()), pb.TIER_DEVICE)
    return common.inventory_message(tiers, {key for key in tiers if slots.is_pinned(key)})


def _residents(slots: AdapterSlots) -> list[pb.Resident]:
    """Return the adapters in vLLM, each with its number in place of a slot, which only vLLM knows."""
    return [
        pb.Resident(
            adapter=common.reference_message(place.key),
            slot=0 if place.lora is None else place.lora.number,
            sequences=place.references,
            pinned=slots.is_pinned(place.key),
            id=place.key.opaque_id,
            rank=place.rank,
        )
        for place in slots.places()
    ]
