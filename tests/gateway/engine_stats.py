"""Engine statistics in which every field has a different value."""

from loragate.v1 import engine_pb2 as pb


def full_stats(*adapters: pb.AdapterRef) -> pb.StatsResponse:
    """Return statistics with a row, demand and residency for each adapter; the first runs, the others wait."""
    stats = pb.StatsResponse(
        started_at=1_700_000_000.5,
        failures=[pb.Failures(code=pb.ERROR_CODE_INTERNAL, count=3), pb.Failures(code=pb.ERROR_CODE_NON_FINITE)],
        recent_steps=pb.StepPercentiles(steps=5, p50=0.25, p90=0.5, p99=0.75),
        prefix_cache=pb.PrefixCache(tenants=[pb.TenantPrefix(tenant_id="tn_x")]),
    )
    for number, field in enumerate((f for f in _numbers(stats) if f != "started_at"), start=101):
        setattr(stats, field, number)
    for histogram in (f.name for f in stats.DESCRIPTOR.fields if f.message_type and f.message_type.name == "Histogram"):
        filled = pb.Histogram(bounds=[0.5, 2.0], counts=[4, 2, 1], sum=9.25)
        getattr(stats, histogram).CopyFrom(filled)
    for room in (stats.adapter_device, stats.adapter_host, stats.adapter_disk, stats.prefix_cache.host):
        room.used_bytes, room.total_bytes = 10, 20
    for cache in (stats.prefix_cache, stats.prefix_cache.tenants[0]):
        cache.looked_up_tokens, cache.device_tokens, cache.host_tokens = 30, 20, 5
    stats.adapters.append(pb.AdapterRow(id="base", requests=1))
    for number, adapter in enumerate(adapters):
        name = f"ad_{number:016x}"
        stats.residents.append(pb.Resident(adapter=adapter, slot=number, sequences=1, pinned=True, id=name, rank=8))
        stats.demand.append(pb.Demand(adapter=adapter, id=name, running=int(number == 0), waiting=number))
        row = pb.AdapterRow(adapter=adapter, id=name, requests=4, started=2, queue_seconds=1.0, loads=number)
        stats.adapters.append(row)
    stats.adapters.sort(key=lambda row: row.id)
    return stats


def _numbers(stats: pb.StatsResponse) -> list[str]:
    messages = pb.StatsResponse.DESCRIPTOR.fields
    return [f.name for f in messages if f.message_type is None and f.name != "more_adapters"]
