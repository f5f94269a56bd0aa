"""The span of one admitted inference request, named by OpenTelemetry's conventions for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai
"""

from loragate.adapter_store.usage.record import Outcome
from loragate.gateway.calls.inference_request import Endpoint, InferenceRequest
from loragate.gateway.calls.request_tokens import DeliveredTokens
from loragate.gateway.tracing.current import Spans

_OPERATIONS: dict[Endpoint, str] = {
    "chat": "chat",
    "classify": "classify",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "messages": "chat",
    "rerank": "rerank",
    "responses": "chat",
    "score": "score",
}


class ModelCall:
    """A span from admission to the end of the request; the spans of what happens in between are its children."""

    def __init__(self, spans: Spans, request: InferenceRequest, base_model: str) -> None:
        from opentelemetry.trace import SpanKind  # not loaded by a gateway without tracing

        adapter = request.target.adapter
        model = base_model if adapter is None else f"{adapter.name}:{adapter.version}"
        operation = _OPERATIONS[request.endpoint]
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
            ("tenant.id", request.caller.tenant_id),
            ("key.id", request.caller.key_id),
            ("request.id", request.request_id),
        ):
            spans.root.set_attribute(f"loragate.{name}", value)

    def end(self, outcome: Outcome, delivered: DeliveredTokens, engine_id: str | None) -> None:
        """End the span with the tokens that were delivered."""
        if engine_id is not None:
            self._span.set_attribute("loragate.engine.id", engine_id)
        self._span.set_attribute("gen_ai.usage.input_tokens", delivered.prompt_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", delivered.completion_tokens)
        self._span.set_attribute("gen_ai.usage.cache_read.input_tokens", delivered.cached_tokens)
        self._span.set_attribute("loragate.outcome", outcome.value)
        if outcome is not Outcome.COMPLETED:
            from loragate.gateway.tracing.spans import set_failed

            set_failed(self._span, outcome.value)
        self._span.end()
        self._spans.parent = self._outer
