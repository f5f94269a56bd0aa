"""The engine's statistics as protobuf messages. All functions are safe to call beside the step loop."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import chain

from loragate.engine.adapters.disk_tier import DiskTier
from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.slot import Resident
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.engine_core import EngineCore
from loragate.engine.metrics.counters import AdapterCounts, EngineMetrics, Histogram
from loragate.engine.metrics.timeline import Timeline, percentile
from loragate.engine.scheduling.virtual_counters import TenantCounter
from loragate.engine.sequence.output import ErrorCode, FinishReason
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.server.conversions import ERRORS
from loragate.v1 import engine_pb2 as pb

_MAX_ROWS = 2000
MAX_DEMAND = 256
MAX_CACHED = 1024
BASE_MODEL_ID = "base"


def build_stats(
    core: EngineCore, disk: DiskTier, request: pb.StatsRequest, on_disk: Iterable[AdapterKey] = ()
) -> pb.StatsResponse:
    """Return counters and gauges as of the last step.

    `on_disk` are adapters whose files are there, those used last first.
    """
    pool = core.adapters
    residents = [_resident(resident) for resident in pool.residents()]
    demand = build_demand(core.metrics, list(core.scheduler.running))
    stats = metrics_stats(core.metrics)
    gauges = pb.StatsResponse(
        running=len(core.scheduler.running),
        waiting=len(core.scheduler.waiting),
        waiting_for_adapter=waiting_for_adapter(demand, residents),
        kv_blocks_used=core.blocks.used,
        kv_blocks_total=core.blocks.total,
        slots_used=pool.used,
        slots_total=pool.total,
        preemptions=core.scheduler.preemptions,
        cuda_graph_steps=core.graphs.replayed,
        cuda_graph_capture_failures=core.graphs.failed,
        threads=core.governor.threads,
        backlog_seconds=core.scheduler.load().seconds,
        adapter_loads=pool.counters.loads,
        adapter_evictions=pool.counters.evictions,
        adapter_reads=pool.counters.reads,
        residents=residents,
        cached=cached_adapters(reversed(pool.host.ranks().items()), on_disk, residents),
        adapter_device=room_message(*pool.device_bytes),
        adapter_host=room_message(pool.host.used, pool.host.budget),
        adapter_disk=room_message(disk.used, disk.budget),
        recent_steps=_percentiles(core.timeline),
        demand=demand[:MAX_DEMAND],
        prefix_cache=_prefix_cache(core.blocks, tenants=request.tenants),
        tenants=map(tenant_message, core.scheduler.tenants()[:MAX_DEMAND]) if request.tenants else (),
    )
    stats.MergeFrom(gauges)
    add_adapter_rows(stats, core.metrics, request)
    return stats


def metrics_stats(metrics: EngineMetrics) -> pb.StatsResponse:
    """Return the counters and histograms, which every backend has."""
    return pb.StatsResponse(
        steps=metrics.steps,
        prompt_tokens=metrics.prompt_tokens,
        generated_tokens=metrics.generated_tokens,
        spec_decode_draft_tokens=metrics.spec_decode_draft_tokens,
        spec_decode_accepted_tokens=metrics.spec_decode_accepted_tokens,
        started_at=metrics.started_at,
        requests=metrics.requests,
        stopped=metrics.finished[FinishReason.STOP],
        ran_to_length=metrics.finished[FinishReason.LENGTH],
        aborted=metrics.aborted,
        shed=metrics.failed[ErrorCode.OVERLOADED],
        failures=[
            pb.Failures(code=code, count=metrics.failed[reason])
            for reason, code in ERRORS.items()
            if reason is not ErrorCode.OVERLOADED
        ],
        queue_seconds=_histogram(metrics.queue_seconds),
        time_to_first_token_seconds=_histogram(metrics.time_to_first_token_seconds),
        inter_token_latency_seconds=_histogram(metrics.inter_token_latency_seconds),
        step_seconds=_histogram(metrics.step_seconds),
        step_tokens=_histogram(metrics.step_tokens),
        step_sequences=_histogram(metrics.step_sequences),
        step_prefill_tokens=_histogram(metrics.step_prefill_tokens),
    )


def build_demand(metrics: EngineMetrics, batch: Iterable[Sequence]) -> list[pb.Demand]:
    """Return adapters with open completions, the busiest in the batch first."""
    running = Counter(sequence.request.adapter for sequence in batch)
    demand = [
        pb.Demand(
            adapter=reference_message(key),
            id=key.opaque_id,
            running=min(count, running[key]),
            waiting=max(0, count - running[key]),
        )
        for key, count in metrics.open().items()
        if key is not None
    ]
    return sorted(demand, key=lambda each: (-each.running, -each.waiting, each.id))


def tenant_message(tenant: TenantCounter) -> pb.TenantDemand:
    return pb.TenantDemand(tenant_id=tenant.tenant_id, running=tenant.seated, waiting=max(0, tenant.waiting))


def waiting_for_adapter(demand: list[pb.Demand], residents: list[pb.Resident]) -> int:
    resident = {(r.adapter.tenant_id, r.adapter.digest) for r in residents}
    return sum(each.waiting for each in demand if (each.adapter.tenant_id, each.adapter.digest) not in resident)


def add_adapter_rows(stats: pb.StatsResponse, metrics: EngineMetrics, request: pb.StatsRequest) -> None:
    """Add the page of adapters that was asked for."""
    limit = min(request.adapter_rows, _MAX_ROWS)
    if limit == 0:
        return
    rows = [_adapter_row(key, counts) for key, counts in metrics.adapters.read().items()]
    rows = sorted((row for row in rows if row.id > request.adapters_after), key=lambda row: row.id)
    stats.adapters.extend(rows[:limit])
    stats.more_adapters = len(rows) > limit


def _adapter_row(key: AdapterKey | None, counts: AdapterCounts) -> pb.AdapterRow:
    return pb.AdapterRow(
        adapter=reference_message(key) if key else None,
        id=key.opaque_id if key else BASE_MODEL_ID,
        requests=counts.requests,
        prompt_tokens=counts.prompt_tokens,
        generated_tokens=counts.generated_tokens,
        started=counts.started,
        queue_seconds=counts.queue_seconds,
        first_tokens=counts.first_tokens,
        time_to_first_token_seconds=counts.time_to_first_token_seconds,
        loads=counts.loads,
    )


def _prefix_cache(blocks: BlockPool, *, tenants: bool) -> pb.PrefixCache | None:
    if blocks.prefix is None:
        return None
    stats = blocks.prefix.stats()
    rows = stats.tenants.items() if tenants else ()
    return pb.PrefixCache(
        looked_up_tokens=stats.total.looked_up,
        device_tokens=stats.total.from_device,
        host_tokens=stats.total.from_host,
        device_evictions=stats.device_evictions,
        host_evictions=stats.host_evictions,
        host=room_message(stats.host_bytes_used, stats.host_bytes),
        tenants=[
            pb.TenantPrefix(
                tenant_id=tenant_id,
                looked_up_tokens=counts.looked_up,
                device_tokens=counts.from_device,
                host_tokens=counts.from_host,
            )
            for tenant_id, counts in rows
        ],
    )


def _percentiles(timeline: Timeline) -> pb.StepPercentiles:
    seconds = sorted(step.seconds for step in timeline.steps())
    return pb.StepPercentiles(
        steps=len(seconds),
        p50=percentile(seconds, 0.5),
        p90=percentile(seconds, 0.9),
        p99=percentile(seconds, 0.99),
    )


def _histogram(histogram: Histogram) -> pb.Histogram:
    read = histogram.read()
    return pb.Histogram(bounds=read.bounds, counts=read.counts, sum=read.sum)


def _resident(resident: Resident) -> pb.Resident:
    return pb.Resident(
        adapter=reference_message(resident.key),
        slot=resident.slot,
        sequences=resident.sequences,
        pinned=resident.pinned,
        id=resident.key.opaque_id,
        rank=resident.rank,
    )


def cached_adapters(
    in_host: Iterable[tuple[AdapterKey, int]], on_disk: Iterable[AdapterKey], residents: Iterable[pb.Resident]
) -> list[pb.CachedAdapter]:
    """Return the adapters that are in host memory, with their ranks, or on disk, but not on the device."""
    listed = {AdapterKey(resident.adapter.tenant_id, resident.adapter.digest) for resident in residents}
    cached: list[pb.CachedAdapter] = []
    host = ((key, pb.TIER_HOST, rank) for key, rank in in_host)
    for key, tier, rank in chain(host, ((key, pb.TIER_DISK, 0) for key in on_disk)):
        if len(cached) == MAX_CACHED:
            break
        if key not in listed:
            listed.add(key)
            cached.append(pb.CachedAdapter(adapter=reference_message(key), id=key.opaque_id, tier=tier, rank=rank))
    return cached


def reference_message(key: AdapterKey) -> pb.AdapterRef:
    return pb.AdapterRef(tenant_id=key.tenant_id, digest=key.digest)


def room_message(used: int, total: int) -> pb.Room:
    return pb.Room(used_bytes=used, total_bytes=total)


def build_inventory(pool: AdapterPool, on_disk: Iterable[AdapterKey]) -> pb.InventoryResponse:
    """Return the adapters that the engine holds, by tier."""
    residents = pool.residents()
    tiers = dict.fromkeys(on_disk, pb.TIER_DISK)
    tiers |= dict.fromkeys(pool.host.keys(), pb.TIER_HOST)
    tiers |= dict.fromkeys((resident.key for resident in residents), pb.TIER_DEVICE)
    return inventory_message(tiers, {resident.key for resident in residents if resident.pinned})


def inventory_message(tiers: Mapping[AdapterKey, pb.Tier], pinned: Container[AdapterKey]) -> pb.InventoryResponse:
    """Return each adapter with the highest tier on which it is."""
    return pb.InventoryResponse(
        held=[pb.Held(adapter=reference_message(key), tier=tier, pinned=key in pinned) for key, tier in tiers.items()]
    )
