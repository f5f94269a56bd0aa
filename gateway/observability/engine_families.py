"""The engines' metrics as metric families of Prometheus."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from loragate.gateway.engine.stats_reader import EngineStats
from loragate.v1 import engine_pb2 as pb

Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)
_LABELS = ("engine",)

_COUNTERS = (
    ("steps", "steps", "Model steps."),
    ("requests", "requests", "Accepted requests; each becomes one completion or several."),
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of accepted requests."),
    ("generation_tokens", "generated_tokens", "Generated tokens."),
    ("spec_decode_draft_tokens", "spec_decode_draft_tokens", "Draft tokens proposed by prompt lookup."),
    ("spec_decode_accepted_tokens", "spec_decode_accepted_tokens", "Draft tokens that the model accepted."),
    ("shed", "shed", "Requests and completions shed because the queue or the wait was too long."),
    ("cuda_graph_steps", "cuda_graph_steps", "Steps replayed from a CUDA graph."),
    (
        "cuda_graph_capture_failures",
        "cuda_graph_capture_failures",
        "CUDA graphs that could not be captured, or computed other logits, when the engine started.",
    ),
    ("num_preemptions", "preemptions", "Completions preempted from the batch and recomputed later."),
    ("adapter_loads", "adapter_loads", "Adapters loaded from host memory to the device."),
    ("adapter_evictions", "adapter_evictions", "Adapters evicted from the device."),
    ("adapter_reads", "adapter_reads", "Adapters read from storage into host memory."),
)
_GAUGES = (
    ("start_time_seconds", "started_at", "Unix time of the engine's start; its counters begin there."),
    ("num_requests_running", "running", "Completions in the batch."),
    ("num_requests_waiting", "waiting", "Completions waiting for any reason."),
    ("backlog_seconds", "backlog_seconds", "Time that the engine will take for its waiting requests."),
    ("waiting_for_adapter", "waiting_for_adapter", "Waiting completions whose adapter is not on the device."),
    ("kv_blocks_used", "kv_blocks_used", "KV cache blocks held by completions."),
    ("kv_blocks_capacity", "kv_blocks_total", "KV cache blocks in total."),
    ("adapter_slots_used", "slots_used", "Adapters on the device."),
    ("adapter_slots_capacity", "slots_total", "Adapter slots on the device."),
    ("threads", "threads", "Threads that steps are computed with; fewer while other processes take the processors."),
)
_HISTOGRAMS = (
    ("request_queue_time_seconds", "queue_seconds", "Time from a request's receipt to its first step."),
    (
        "time_to_first_token_seconds",
        "time_to_first_token_seconds",
        "Time from a request's receipt to a completion's first token.",
    ),
    ("inter_token_latency_seconds", "inter_token_latency_seconds", "Time between two tokens of a completion."),
    ("step_seconds", "step_seconds", "Duration of a step."),
    ("step_tokens", "step_tokens", "Tokens computed by a step."),
    ("step_sequences", "step_sequences", "Completions in a step."),
    ("step_prefill_tokens", "step_prefill_tokens", "Prompt tokens computed by a step."),
)


def engine_families(engines: EngineStats) -> Iterator[Metric]:
    """Yield all metrics without names of adapters or tenants, by engine; for one that is down, only that it is down."""
    up = GaugeMetricFamily("loragate_engine_up", "1 while the engine responds.", labels=_LABELS)
    for id_, stats in engines.items():
        up.add_metric((id_,), float(stats is not None))
    yield up
    running = responding(engines)
    if not running:
        return
    for name, field, help in _COUNTERS:
        yield _by_engine(CounterMetricFamily(f"loragate_engine_{name}", help, labels=_LABELS), running, field)
    for name, field, help in _GAUGES:
        yield _by_engine(GaugeMetricFamily(f"loragate_engine_{name}", help, labels=_LABELS), running, field)
    for name, field, help in _HISTOGRAMS:
        yield _histograms(f"loragate_engine_{name}", help, field, running)
    yield _completions(running)
    yield _failures(running)
    yield from _adapter_memory(running)
    yield from _prefix_cache(
        {id_: stats.prefix_cache for id_, stats in running.items() if stats.HasField("prefix_cache")}
    )


def responding(engines: EngineStats) -> dict[str, pb.StatsResponse]:
    """Return the statistics of the engines that respond."""
    return {id_: stats for id_, stats in engines.items() if stats is not None}


def _by_engine(family: Family, running: Mapping[str, pb.StatsResponse], field: str) -> Family:
    for id_, stats in running.items():
        family.add_metric((id_,), getattr(stats, field))
    return family


def _completions(running: Mapping[str, pb.StatsResponse]) -> Metric:
    help = "Completions that ended without an error."
    family = CounterMetricFamily("loragate_engine_completions", help, labels=("engine", "finish"))
    for id_, stats in running.items():
        for finish, count in (("stop", stats.stopped), ("length", stats.ran_to_length), ("abort", stats.aborted)):
            family.add_metric((id_, finish), count)
    return family


def _failures(running: Mapping[str, pb.StatsResponse]) -> Metric:
    help = "Requests rejected and completions ended with an error, except those shed."
    family = CounterMetricFamily("loragate_engine_failures", help, labels=("engine", "code"))
    for id_, stats in running.items():
        for each in stats.failures:
            family.add_metric((id_, pb.ErrorCode.Name(each.code).removeprefix("ERROR_CODE_").lower()), each.count)
    return family


def _adapter_memory(running: Mapping[str, pb.StatsResponse]) -> Iterator[Metric]:
    labels = ("engine", "tier")
    used = GaugeMetricFamily("loragate_engine_adapter_bytes", "Bytes of adapters, by tier.", labels=labels)
    limit = GaugeMetricFamily("loragate_engine_adapter_limit_bytes", "Byte limit for adapters, by tier.", labels=labels)
    for id_, stats in running.items():
        tiers = (("device", stats.adapter_device), ("host", stats.adapter_host), ("disk", stats.adapter_disk))
        for tier, room in tiers:
            used.add_metric((id_, tier), room.used_bytes)
            limit.add_metric((id_, tier), room.total_bytes)
    yield used
    yield limit


def _prefix_cache(caches: Mapping[str, pb.PrefixCache]) -> Iterator[Metric]:
    if not caches:
        return
    tiers, help = ("engine", "tier"), "Prompt tokens looked up in the prefix cache."
    queries = CounterMetricFamily("loragate_engine_prefix_cache_queries", help, labels=_LABELS)
    help = "Prompt tokens found in the prefix cache, by tier."
    hits = CounterMetricFamily("loragate_engine_prefix_cache_hits", help, labels=tiers)
    help = "Blocks evicted from the prefix cache, by tier."
    evicted = CounterMetricFamily("loragate_engine_prefix_evicted_blocks", help, labels=tiers)
    help = "Bytes of cached prefixes in host memory."
    used = GaugeMetricFamily("loragate_engine_prefix_host_bytes", help, labels=_LABELS)
    help = "Byte limit for cached prefixes in host memory."
    limit = GaugeMetricFamily("loragate_engine_prefix_host_limit_bytes", help, labels=_LABELS)
    for id_, cache in caches.items():
        queries.add_metric((id_,), cache.looked_up_tokens)
        hits.add_metric((id_, "device"), cache.device_tokens)
        hits.add_metric((id_, "host"), cache.host_tokens)
        evicted.add_metric((id_, "device"), cache.device_evictions)
        evicted.add_metric((id_, "host"), cache.host_evictions)
        used.add_metric((id_,), cache.host.used_bytes)
        limit.add_metric((id_,), cache.host.total_bytes)
    yield from (queries, hits, evicted, used, limit)


def _histograms(name: str, help: str, field: str, running: Mapping[str, pb.StatsResponse]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=_LABELS)
    for id_, stats in running.items():
        if stats.HasField(field):  # an older engine may not report it
            histogram: pb.Histogram = getattr(stats, field)
            ends = [*map(floatToGoString, histogram.bounds), "+Inf"]
            buckets = list(zip(ends, accumulate(histogram.counts), strict=True))
            family.add_metric((id_,), buckets, histogram.sum)
    return family
