"""Spans of the engine's work for a traced request.

The engine receives the trace's id. With the first piece of its response it reports how long the request waited and how
long its prompt took.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from loragate.engine.client.client import Engine
from loragate.engine.client.request import RequestObserver
from loragate.gateway.tracing.current import CURRENT, Spans
from loragate.gateway.tracing.spans import now_ns
from loragate.v1 import engine_pb2 as pb

_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length", pb.FINISH_REASON_ERROR: "error"}


class TracedEngine:
    """An Engine that traces its requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def generate(
        self, submit: pb.Submit, observer: RequestObserver | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[pb.Delta]]:
        """See `Engine.generate`."""
        spans = CURRENT.get()
        return self._engine.generate(submit, observer) if spans is None else self._traced(submit, observer, spans)

    @asynccontextmanager
    async def _traced(
        self, submit: pb.Submit, observer: RequestObserver | None, spans: Spans
    ) -> AsyncIterator[AsyncIterator[pb.Delta]]:
        submit.traceparent = spans.traceparent()
        _describe_request(submit, spans)
        submission = _Submission(spans)
        async with self._engine.generate(submit, observer) as deltas:
            try:
                yield submission.follow(deltas)
            finally:
                submission.end()


class _Submission:
    """One prompt's spans."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._parent = spans.parent
        self._sent = now_ns()
        self._first: int | None = None
        self._last = 0
        self._tokens = 0
        self._reasons: list[str] = []

    async def follow(self, deltas: AsyncIterator[pb.Delta]) -> AsyncIterator[pb.Delta]:
        async for delta in deltas:
            self._last = now_ns()
            self._tokens += len(delta.token_ids)
            if delta.finish_reason:
                self._reasons.append(_REASONS[delta.finish_reason])
            if delta.HasField("timings") and self._first is None:
                self._until_first(delta.timings)
            yield delta

    def _until_first(self, timings: pb.Timings) -> None:
        """Record the spans before the first token: the engine's durations on this process's clock."""
        self._first = self._last
        prefilling = max(self._sent, self._first - round(1e9 * timings.prefill_seconds))
        queueing = max(self._sent, prefilling - round(1e9 * timings.queue_seconds))
        self._spans.begin("queue", at=queueing).end(prefilling)
        self._spans.begin("prefill", at=prefilling).end(self._first)

    def end(self) -> None:
        if self._first is not None and self._tokens:
            decode = self._spans.begin("decode", at=self._first)
            decode.set_attribute("gen_ai.usage.output_tokens", self._tokens)
            decode.end(max(self._first, self._last))
        if self._reasons:
            self._parent.set_attribute("gen_ai.response.finish_reasons", self._reasons)


def _describe_request(submit: pb.Submit, spans: Spans) -> None:
    if submit.pooling:
        return
    sampling = submit.sampling
    spans.parent.set_attributes(
        {
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p or 1.0,
            "gen_ai.request.choice.count": max(1, submit.n),
        }
    )
