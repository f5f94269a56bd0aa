"""Metrics of inference requests as their clients saw them, recorded when they end."""

from prometheus_client import CollectorRegistry, Histogram

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.http.metrics import SECONDS
from loragate.gateway.instruments.tenant_counter import TenantCounter
from loragate.gateway.metering.target_metrics import AliasTargetMetrics

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
