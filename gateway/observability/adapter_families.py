"""Metrics of single adapters and tenants, for the operator: only the operator may know whose adapters are busy."""

import time
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from loragate.gateway.engine.adapter_names import Names, content_of
from loragate.v1 import engine_pb2 as pb

_COUNTERS = (
    ("requests", "requests", "Requests for the adapter."),
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of these requests."),
    ("generation_tokens", "generated_tokens", "Tokens generated with the adapter."),
    ("started_completions", "started", "Completions that reached the batch."),
    ("request_queue_time_seconds", "queue_seconds", "Summed time from receipt to the first step."),
    ("answered_completions", "first_tokens", "Completions that received a token."),
    ("time_to_first_token_seconds", "time_to_first_token_seconds", "Summed time from receipt to the first token."),
    ("loads", "loads", "Loads of the adapter to the device."),
)
_SUMMED = ("running", "waiting", "kv_blocks_used", "kv_blocks_total", "slots_total")
_MAX_LISTED = 128  # adapters in one label's value
_LEVELS = {pb.TIER_HOST: "cpu", pb.TIER_DISK: "disk"}  # vLLM's help, except the last


def summed(engines: Sequence[pb.StatsResponse]) -> pb.StatsResponse:
    """Return the gauges of all engines as those of one: routers see the gateway as a single server."""
    if len(engines) == 1:
        return engines[0]
    fleet = pb.StatsResponse()
    demand: dict[str, pb.Demand] = {}
    for stats in engines:
        for name in _SUMMED:
            setattr(fleet, name, getattr(fleet, name) + getattr(stats, name))
        for each in stats.demand:
            shared = demand.setdefault(each.id, pb.Demand(adapter=each.adapter, id=each.id))
            shared.running += each.running
            shared.waiting += each.waiting
        fleet.residents.extend(stats.residents)
        fleet.cached.extend(stats.cached)
    fleet.demand.extend(demand.values())
    return fleet


def lora_requests_info(stats: pb.StatsResponse, names: Names | None) -> Metric:
    """Return vLLM's gauge, by which inference gateways prefer a server that has the adapter; its value is the time.
    With None the lists are empty, as they are for everybody but the operator."""
    family = GaugeMetricFamily(
        "vllm:lora_requests_info",
        "Adapters with completions in the batch and in the queue; the value is the time.",
        labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
    )
    shown = () if names is None else stats.demand
    running = [_model_name(each.adapter, each.id, names or {}) for each in shown if each.running]
    waiting = [_model_name(each.adapter, each.id, names or {}) for each in shown if each.waiting]
    family.add_metric((str(stats.slots_total), _listed(running), _listed(waiting)), time.time())
    return family


def lora_residency(stats: pb.StatsResponse, names: Names | None, served_base: str) -> Iterator[Metric]:
    """Yield vLLM's gauges of the adapters that are loaded, idle ones included; with None their numbers only.

    `served_base` is the `model_name` by which routers recognize requests for the base model; empty if it is hidden.
    """
    if names is not None:
        yield _loaded(stats, names)
    on_device = GaugeMetricFamily(
        "vllm:num_gpu_loaded_lora_adapters", "Adapters on the device.", labels=("model_name",)
    )
    on_device.add_metric((served_base,), len(stats.residents))
    yield on_device
    yield GaugeMetricFamily("vllm:max_gpu_lora_adapters", "Adapter slots on the device.", value=stats.slots_total)


def _loaded(stats: pb.StatsResponse, names: Names) -> Metric:
    loaded = GaugeMetricFamily(
        "vllm:lora_adapter_loaded",
        "1 for each adapter on the device (gpu), in host memory (cpu) or on disk.",
        labels=("adapter_name", "level", "pinned", "rank"),
    )
    held = [(_model_name(each.adapter, each.id, names), "gpu", each.pinned, each.rank) for each in stats.residents]
    held += [(_model_name(each.adapter, each.id, names), _LEVELS[each.tier], False, each.rank) for each in stats.cached]
    for name, level, pinned, rank in dict.fromkeys(held):  # versions of an adapter share its name
        loaded.add_metric((name, level, str(pinned).lower(), str(rank or "")), 1)
    return loaded


def vllm_load(stats: pb.StatsResponse) -> Iterator[Metric]:
    """Yield vLLM's gauges of the engine's load."""
    usage = stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0
    for name, help, value in (
        ("num_requests_running", "Completions in the batch.", stats.running),
        ("num_requests_waiting", "Completions waiting for any reason.", stats.waiting),
        ("kv_cache_usage_perc", "Used share of the KV cache, from 0 to 1.", usage),
    ):
        yield GaugeMetricFamily(f"vllm:{name}", help, value=value)


def adapter_families(running: Mapping[str, pb.StatsResponse], names: Names) -> Iterator[Metric]:
    """Yield the counters of each adapter that was requested recently, by engine."""
    for name, field, help in _COUNTERS:
        family = CounterMetricFamily(f"loragate_adapter_{name}", help, labels=("engine", "id", "tenant", "adapter"))
        for id_, stats in running.items():
            for row in stats.adapters:
                labels = (id_, row.id, row.adapter.tenant_id, _version_name(row, names))
                family.add_metric(labels, getattr(row, field))
        yield family


def tenant_families(running: Mapping[str, pb.StatsResponse]) -> Iterator[Metric]:
    """Yield each tenant's counters of the prefix cache, by engine."""
    lookups = CounterMetricFamily(
        "loragate_tenant_prefix_cache_queries",
        "The tenant's prompt tokens looked up in the prefix cache.",
        labels=("engine", "tenant"),
    )
    hits = CounterMetricFamily(
        "loragate_tenant_prefix_cache_hits",
        "The tenant's prompt tokens found in the prefix cache, by tier.",
        labels=("engine", "tenant", "tier"),
    )
    for id_, stats in running.items():
        for row in stats.prefix_cache.tenants:
            lookups.add_metric((id_, row.tenant_id), row.looked_up_tokens)
            hits.add_metric((id_, row.tenant_id, "device"), row.device_tokens)
            hits.add_metric((id_, row.tenant_id, "host"), row.host_tokens)
    yield lookups
    yield hits


def _listed(names: list[str]) -> str:
    return ",".join(list(dict.fromkeys(names))[:_MAX_LISTED])


def _model_name(adapter: pb.AdapterRef, opaque_id: str, names: Names) -> str:
    """Return the adapter's name in the `model` field of requests, or its opaque id if the name is unknown."""
    known = names.get(content_of(adapter))
    return known[0].name if known else opaque_id


def _version_name(row: pb.AdapterRow, names: Names) -> str:
    known = names.get(content_of(row.adapter))
    return f"{known[0].name}:{known[0].version}" if known else ""
