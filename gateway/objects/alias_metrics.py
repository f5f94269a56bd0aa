"""Metrics of the versions behind an alias."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.usage.target_usage import AliasTargetUsage
from loragate.gateway.objects.common import Count, Moment
from loragate.gateway.objects.usage import TtftMs, first_token_object


class AliasTargetMetrics(TypedDict):
    """Metrics of one version. `errors` counts failed requests; `weight` is null if the alias no longer points to it."""

    version: Count
    weight: Count | None
    requests: Count
    errors: Count
    prompt_tokens: Count
    completion_tokens: Count
    ttft_ms: TtftMs | None


class AliasMetrics(TypedDict):
    """Metrics of the versions behind an alias, between `start` and `end`."""

    id: str
    object: Literal["adapter.alias.metrics"]
    name: str
    alias: str
    start: Moment
    end: Moment
    targets: list[AliasTargetMetrics]


def alias_metrics_object(
    name: str,
    alias: str,
    start: datetime,
    end: datetime,
    used: Iterable[AliasTargetUsage],
    weights: Mapping[int, int],
) -> AliasMetrics:
    """Return the metrics of an alias. `weights` are those of the versions that it points to now."""
    return {
        "id": f"{name}@{alias}",
        "object": "adapter.alias.metrics",
        "name": name,
        "alias": alias,
        "start": rfc3339(start),
        "end": rfc3339(end),
        "targets": [_target_object(each, weights.get(each.version)) for each in used],
    }


def _target_object(usage: AliasTargetUsage, weight: int | None) -> AliasTargetMetrics:
    return {
        "version": usage.version,
        "weight": weight,
        "requests": usage.requests,
        "errors": usage.errors,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "ttft_ms": first_token_object(usage.first_token),
    }
