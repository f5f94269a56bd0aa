"""The engine's metrics as metric families of Prometheus."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from loragate.v1 import engine_pb2 as pb

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


def engine_families(stats: pb.StatsResponse | None) -> Iterator[Metric]:
    """Yield all metrics without names of adapters or tenants; for an engine that is down, only that it is down."""
    yield GaugeMetricFamily("loragate_engine_up", "1 while the engine responds.", value=float(stats is not None))
    if stats is None:
        return
    for name, field, help in _COUNTERS:
        yield CounterMetricFamily(f"loragate_engine_{name}", help, value=getattr(stats, field))
    for name, field, help in _GAUGES:
        yield GaugeMetricFamily(f"loragate_engine_{name}", help, value=getattr(stats, field))
    for name, field, help in _HISTOGRAMS:
        if stats.HasField(field):  # an older engine may not report it
            yield _histogram(f"loragate_engine_{name}", help, getattr(stats, field))
    yield _completions(stats)
    yield _failures(stats)
    yield from _adapter_memory(stats)
    if stats.HasField("prefix_cache"):
        yield from _prefix_cache(stats.prefix_cache)


def labeled_counter(name: str, help: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """Return a counter with one label, from the counts of the label's values."""
    family = CounterMetricFamily(name, help, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def _completions(stats: pb.StatsResponse) -> Metric:
    ends = {"stop": stats.stopped, "length": stats.ran_to_length, "abort": stats.aborted}
    return labeled_counter("loragate_engine_completions", "Completions that ended without an error.", "finish", ends)


def _failures(stats: pb.StatsResponse) -> Metric:
    help = "Requests rejected and completions ended with an error, except those shed."
    counts = {pb.ErrorCode.Name(f.code).removeprefix("ERROR_CODE_").lower(): f.count for f in stats.failures}
    return labeled_counter("loragate_engine_failures", help, "code", counts)


def _adapter_memory(stats: pb.StatsResponse) -> Iterator[Metric]:
    used = GaugeMetricFamily("loragate_engine_adapter_bytes", "Bytes of adapters, by tier.", labels=("tier",))
    limit = GaugeMetricFamily(
        "loragate_engine_adapter_limit_bytes", "Byte limit for adapters, by tier.", labels=("tier",)
    )
    tiers = (("device", stats.adapter_device), ("host", stats.adapter_host), ("disk", stats.adapter_disk))
    for tier, room in tiers:
        used.add_metric((tier,), room.used_bytes)
        limit.add_metric((tier,), room.total_bytes)
    yield used
    yield limit


def _prefix_cache(cache: pb.PrefixCache) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "loragate_engine_prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        value=cache.looked_up_tokens,
    )
    found = {"device": cache.device_tokens, "host": cache.host_tokens}
    help = "Prompt tokens found in the prefix cache, by tier."
    yield labeled_counter("loragate_engine_prefix_cache_hits", help, "tier", found)
    evicted = {"device": cache.device_evictions, "host": cache.host_evictions}
    help = "Blocks evicted from the prefix cache, by tier."
    yield labeled_counter("loragate_engine_prefix_evicted_blocks", help, "tier", evicted)
    for name, help, value in (
        ("bytes", "Bytes of cached prefixes in host memory.", cache.host.used_bytes),
        ("limit_bytes", "Byte limit for cached prefixes in host memory.", cache.host.total_bytes),
    ):
        yield GaugeMetricFamily(f"loragate_engine_prefix_host_{name}", help, value=value)


def _histogram(name: str, help: str, histogram: pb.Histogram) -> Metric:
    ends = [*map(floatToGoString, histogram.bounds), "+Inf"]
    cumulative = accumulate(histogram.counts)
    return HistogramMetricFamily(name, help, buckets=list(zip(ends, cumulative, strict=True)), sum_value=histogram.sum)
