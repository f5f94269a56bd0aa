"""The span of one admitted inference request, in the words of OpenTelemetry's conventions for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai
"""

from loragate.adapter_store.usage.record import Outcome
from loragate.gateway.calls.delivered_tokens import Told
from loragate.gateway.calls.inference_request import Ask, Endpoint
from loragate.gateway.tracing.current import CURRENT, Spans

_OPERATIONS: dict[Endpoint, str] = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "responses": "chat",
}


def model_call(ask: Ask, base_model: str) -> "ModelCall | None":
    """Open the span of an admitted request, which its caller ends; None where the request is not traced."""
    spans = CURRENT.get()
    return None if spans is None else ModelCall(spans, ask, base_model)


class ModelCall:
    """From its admission to its end; the spans of what happens meanwhile belong to it."""

    def __init__(self, spans: Spans, ask: Ask, base_model: str) -> None:
        from opentelemetry.trace import SpanKind  # what no gateway loads that traces nothing

        adapter = ask.target.adapter
        model = base_model if adapter is None else f"{adapter.name}:{adapter.version}"
        operation = _OPERATIONS[ask.endpoint]
        self._spans = spans
        self._outer = spans.parent
        self._span = spans.parent = spans.begin(f"{operation} {model}", SpanKind.CLIENT)
        self._span.set_attributes(
            {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "loragate",
                "gen_ai.request.model": model,
                "gen_ai.response.model": base_model,
            }
        )
        if adapter is not None:
            self._span.set_attribute("loragate.adapter.digest", adapter.digest)
        for name, value in (
            ("tenant.id", ask.caller.tenant_id),
            ("key.id", ask.caller.key_id),
            ("request.id", ask.request_id),
        ):
            spans.root.set_attribute(f"loragate.{name}", value)

    def end(self, outcome: Outcome, told: Told) -> None:
        """With what the client was told."""
        self._span.set_attribute("gen_ai.usage.input_tokens", told.prompt_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", told.completion_tokens)
        self._span.set_attribute("gen_ai.usage.cache_read.input_tokens", told.cached_tokens)
        self._span.set_attribute("loragate.outcome", outcome.value)
        if outcome is not Outcome.COMPLETED:
            from loragate.gateway.tracing.spans import set_failed

            set_failed(self._span, outcome.value)
        self._span.end()
        self._spans.parent = self._outer
