"""What is told about single adapters and tenants: to everybody what routers need, under opaque ids; to the operator
the rest, with names."""

import time
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from loragate.gateway.engine.adapter_names import Names, content_of
from loragate.v1 import engine_pb2 as pb

_COUNTERS = (
    ("requests", "requests", "Requests for the adapter."),
    ("prompt_tokens", "prompt_tokens", "Tokens of their prompts."),
    ("generated_tokens", "generated_tokens", "Tokens generated with it."),
    ("started_completions", "started", "Completions that reached the batch."),
    ("queue_seconds", "queue_seconds", "Their time from receipt to the first step, summed."),
    ("answered_completions", "first_tokens", "Completions that got a token."),
    ("first_token_seconds", "first_token_seconds", "Their time from receipt to the first token, summed."),
    ("loads", "loads", "Times it was brought to the device."),
)
_MOST_LISTED = 128  # adapters that one label names


def lora_requests_info(stats: pb.StatsResponse, names: Names) -> Metric:
    """vLLM's gauge, by which inference gateways prefer a server that has the adapter: its value is the time."""
    family = GaugeMetricFamily(
        "vllm:lora_requests_info",
        "Adapters with completions in the batch and in the queue; the value is the time.",
        labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
    )
    running = [_model_name(each, names) for each in stats.demand if each.running]
    waiting = [_model_name(each, names) for each in stats.demand if each.waiting]
    family.add_metric((str(stats.slots_total), _listed(running), _listed(waiting)), time.time())
    return family


def adapter_families(stats: pb.StatsResponse, names: Names) -> Iterator[Metric]:
    """Counters of each adapter that was asked for lately."""
    for name, field, words in _COUNTERS:
        family = CounterMetricFamily(f"loragate_adapter_{name}", words, labels=("id", "tenant", "adapter"))
        for row in stats.adapters:
            family.add_metric((row.id, row.adapter.tenant_id, _version_name(row, names)), getattr(row, field))
        yield family


def tenant_families(stats: pb.StatsResponse) -> Iterator[Metric]:
    """What each tenant gets from the prefix cache."""
    lookups = CounterMetricFamily(
        "loragate_tenant_prefix_lookup_tokens",
        "Prompt tokens of the tenant looked up in the prefix cache.",
        labels=("tenant",),
    )
    hits = CounterMetricFamily(
        "loragate_tenant_prefix_hit_tokens",
        "Prompt tokens of the tenant found there, by tier.",
        labels=("tenant", "tier"),
    )
    for row in stats.prefix_cache.tenants:
        lookups.add_metric((row.tenant_id,), row.looked_up_tokens)
        hits.add_metric((row.tenant_id, "device"), row.device_tokens)
        hits.add_metric((row.tenant_id, "host"), row.host_tokens)
    yield lookups
    yield hits


def _listed(names: list[str]) -> str:
    return ",".join(list(dict.fromkeys(names))[:_MOST_LISTED])


def _model_name(demand: pb.Demand, names: Names) -> str:
    """As requests name it in `model`."""
    known = names.get(content_of(demand.adapter))
    return known[0].name if known else demand.id


def _version_name(row: pb.AdapterRow, names: Names) -> str:
    known = names.get(content_of(row.adapter))
    return f"{known[0].name}:{known[0].version}" if known else ""
