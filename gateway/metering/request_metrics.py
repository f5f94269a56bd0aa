"""Metrics of inference requests, recorded when they end: as clients saw them, and by the version behind an alias."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.http.metrics import SECONDS
from loragate.gateway.instruments.tenant_counter import OTHER, TenantCounter

_TOKEN_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


class RequestMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._first_token = Histogram(
            "loragate_gateway_time_to_first_token_seconds",
            "Time from a request's admission to its first token.",
            buckets=SECONDS,
            registry=registry,
        )
        self._each_token = Histogram(
            "loragate_gateway_time_per_output_token_seconds",
            "Mean time per output token of a request, after its first.",
            buckets=_TOKEN_SECONDS,
            registry=registry,
        )
        self._requests = TenantCounter("requests", "Requests that ended, by outcome.", registry, "outcome")
        self._prompt = TenantCounter("prompt_tokens", "Prompt tokens of these requests.", registry)
        self._completion = TenantCounter("completion_tokens", "Tokens delivered to clients.", registry)
        self._targets = AliasTargetMetrics(registry)

    def ended(self, record: UsageRecord) -> None:
        """Record that a request has ended."""
        self._requests.inc(record.tenant_id, record.outcome.value)
        self._targets.ended(record)
        if record.ttft_ms is None:
            return
        self._prompt.inc(record.tenant_id, by=record.prompt_tokens)
        self._first_token.observe(record.ttft_ms / 1000)
        if record.completion_tokens:
            self._completion.inc(record.tenant_id, by=record.completion_tokens)
        if record.completion_tokens > 1:
            rest = record.duration_ms - record.ttft_ms
            self._each_token.observe(rest / 1000 / (record.completion_tokens - 1))


ALIAS_TARGET_PREFIX = "loragate_alias_target_"
MAX_TARGETS = 1024
_LABELS = ("tenant", "adapter", "alias")

AliasTarget = tuple[str, str, str]


class AliasTargetMetrics:
    """Counts the first 1,024 pairs of version and alias of a process individually, and all others together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help: str, *more: str) -> Counter:
            return Counter(f"{ALIAS_TARGET_PREFIX}{name}", help, (*_LABELS, *more), registry=registry)

        self._requests = counter(
            "requests", "Requests for an alias, by the version that served them and by outcome.", "outcome"
        )
        self._of_answered = (
            counter("answered_requests", "Requests that received a token."),
            counter("prompt_tokens", "Prompt tokens of these requests."),
            counter("completion_tokens", "Tokens delivered to clients."),
            counter("time_to_first_token_seconds", "Summed time from admission to the first token."),
        )
        self._requests_by_outcome: dict[tuple[AliasTarget, str], Counter] = {}
        self._series: dict[AliasTarget, list[Counter]] = {}  # of answered requests

    def ended(self, record: UsageRecord) -> None:
        """Record that a request has ended."""
        if record.adapter_alias is None:
            return
        target = (record.tenant_id, f"{record.adapter}:{record.adapter_version}", record.adapter_alias)
        series = self._series.get(target)
        if series is None:
            target, series = self._new_series(target)
        key = (target, record.outcome.value)
        requests = self._requests_by_outcome.get(key)
        if requests is None:
            requests = self._requests_by_outcome[key] = self._requests.labels(*target, record.outcome.value)
        requests.inc()
        if record.ttft_ms is not None:
            amounts = (1, record.prompt_tokens, record.completion_tokens, record.ttft_ms / 1000)
            for counter, amount in zip(series, amounts, strict=True):
                counter.inc(amount)

    def _new_series(self, target: AliasTarget) -> tuple[AliasTarget, list[Counter]]:
        if len(self._series) >= MAX_TARGETS:
            target = (OTHER, OTHER, OTHER)
        if target not in self._series:
            self._series[target] = [counter.labels(*target) for counter in self._of_answered]
        return target, self._series[target]
