"""The engine's totals as Prometheus' metric families."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from loragate.v1 import engine_pb2 as pb

_COUNTERS = (
    ("steps", "steps", "Steps of the model."),
    ("requests", "requests", "Requests taken in; each becomes one completion or several."),
    ("prompt_tokens", "prompt_tokens", "Tokens of prompts taken in."),
    ("generated_tokens", "generated_tokens", "Tokens generated."),
    ("guessed_tokens", "guessed_tokens", "Tokens guessed ahead by prompt lookup."),
    ("guessed_right_tokens", "guessed_right", "Those of them that were generated."),
    ("shed", "shed", "Requests and completions refused because too much waited, or they did for too long."),
    ("recorded_steps", "recorded_steps", "Steps whose launches on a GPU were played back from a recording."),
    ("failed_recordings", "failed_recordings", "Recordings of such steps that failed when the engine started."),
    ("preemptions", "preemptions", "Completions that lost their place in the batch and were computed anew."),
    ("adapter_loads", "adapter_loads", "Adapters brought from host memory to the device."),
    ("adapter_evictions", "adapter_evictions", "Adapters that made room on the device."),
    ("adapter_reads", "adapter_reads", "Adapters read from storage into host memory."),
)
_GAUGES = (
    ("start_time_seconds", "started_at", "When the engine started, in Unix time; its counters are since then."),
    ("running", "running", "Completions in the batch."),
    ("waiting", "waiting", "Completions that wait, for whatever."),
    ("waiting_for_adapter", "waiting_for_adapter", "Those of them whose adapter is not on the device."),
    ("kv_blocks_used", "kv_blocks_used", "Blocks of the KV cache that completions hold."),
    ("kv_blocks_capacity", "kv_blocks_total", "Blocks of the KV cache."),
    ("adapter_slots_used", "slots_used", "Adapters on the device."),
    ("adapter_slots_capacity", "slots_total", "Adapters that can be on the device at once."),
)
_HISTOGRAMS = (
    ("queue_seconds", "queue_seconds", "From a request's receipt to its first step."),
    ("first_token_seconds", "first_token_seconds", "From a request's receipt to a completion's first token."),
    ("inter_token_seconds", "inter_token_seconds", "From a completion's token to its next one."),
    ("step_seconds", "step_seconds", "Duration of a step."),
    ("step_rows", "step_rows", "Tokens that a step computes."),
    ("step_sequences", "step_sequences", "Completions that a step computes tokens of."),
    ("step_prefill_tokens", "step_prefill_tokens", "Tokens of prompts that a step computes."),
)


def engine_families(stats: pb.StatsResponse | None) -> Iterator[Metric]:
    """Everything but what names an adapter or a tenant; of an engine that is down, only that it is."""
    yield GaugeMetricFamily("loragate_engine_up", "1 while the engine answers.", value=float(stats is not None))
    if stats is None:
        return
    for name, field, words in _COUNTERS:
        yield CounterMetricFamily(f"loragate_engine_{name}", words, value=getattr(stats, field))
    for name, field, words in _GAUGES:
        yield GaugeMetricFamily(f"loragate_engine_{name}", words, value=getattr(stats, field))
    for name, field, words in _HISTOGRAMS:
        if stats.HasField(field):  # an older engine's may be absent
            yield _histogram(f"loragate_engine_{name}", words, getattr(stats, field))
    yield _completions(stats)
    yield _failures(stats)
    yield from _adapter_memory(stats)
    if stats.HasField("prefix_cache"):
        yield from _prefix_cache(stats.prefix_cache)


def labelled_counter(name: str, words: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """One label, a value for each of its values."""
    family = CounterMetricFamily(name, words, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def _completions(stats: pb.StatsResponse) -> Metric:
    ends = {"stop": stats.stopped, "length": stats.ran_to_length, "abort": stats.aborted}
    return labelled_counter("loragate_engine_completions", "Completions that ended without an error.", "finish", ends)


def _failures(stats: pb.StatsResponse) -> Metric:
    words = "Requests refused and completions ended with an error, other than those shed."
    counts = {pb.ErrorCode.Name(f.code).removeprefix("ERROR_CODE_").lower(): f.count for f in stats.failures}
    return labelled_counter("loragate_engine_failures", words, "code", counts)


def _adapter_memory(stats: pb.StatsResponse) -> Iterator[Metric]:
    used = GaugeMetricFamily("loragate_engine_adapter_bytes", "Bytes of adapters, by tier.", labels=("tier",))
    limit = GaugeMetricFamily("loragate_engine_adapter_limit_bytes", "Room for adapters, by tier.", labels=("tier",))
    tiers = (("device", stats.adapter_device), ("host", stats.adapter_host), ("disk", stats.adapter_disk))
    for tier, room in tiers:
        used.add_metric((tier,), room.used_bytes)
        limit.add_metric((tier,), room.total_bytes)
    yield used
    yield limit


def _prefix_cache(cache: pb.PrefixCache) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "loragate_engine_prefix_lookup_tokens",
        "Prompt tokens looked up in the prefix cache.",
        value=cache.looked_up_tokens,
    )
    found = {"device": cache.device_tokens, "host": cache.host_tokens}
    words = "Prompt tokens found in the prefix cache, by tier."
    yield labelled_counter("loragate_engine_prefix_hit_tokens", words, "tier", found)
    evicted = {"device": cache.device_evictions, "host": cache.host_evictions}
    words = "Blocks that lost their place in the prefix cache, by tier."
    yield labelled_counter("loragate_engine_prefix_evicted_blocks", words, "tier", evicted)
    for name, words, value in (
        ("bytes", "Bytes of cached prefixes in host memory.", cache.host.used_bytes),
        ("limit_bytes", "Room for cached prefixes in host memory.", cache.host.total_bytes),
    ):
        yield GaugeMetricFamily(f"loragate_engine_prefix_host_{name}", words, value=value)


def _histogram(name: str, words: str, histogram: pb.Histogram) -> Metric:
    ends = [*map(floatToGoString, histogram.bounds), "+Inf"]
    cumulative = accumulate(histogram.counts)
    return HistogramMetricFamily(name, words, buckets=list(zip(ends, cumulative, strict=True)), sum_value=histogram.sum)
