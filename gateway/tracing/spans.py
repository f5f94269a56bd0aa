"""One traced request."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from loragate.gateway.tracing.current import CURRENT
from loragate.gateway.tracing.span import failed

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_NOBODY = Context()  # no parent; without it the process' own context would be asked


class RequestSpans:
    """`root` is the request's own span; `parent` what new spans belong to."""

    def __init__(self, tracer: Tracer, root: Span) -> None:
        self.root = root
        self.parent = root
        self._tracer = tracer

    @property
    def trace_id(self) -> str:
        """In hexadecimal, as logs name it."""
        return format_trace_id(self.root.get_span_context().trace_id)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A span around the block; an exception only leaves its name."""
        span = self.begin(name)
        try:
            yield
        except BaseException as error:
            failed(span, type(error).__name__)
            raise
        finally:
            span.end()

    def begin(self, name: str, kind: SpanKind = SpanKind.INTERNAL, *, at: int | None = None) -> Span:
        """A span that somebody else ends; `at` in nanoseconds of Unix time, else now."""
        return self._tracer.start_span(name, set_span_in_context(self.parent, _NOBODY), kind, start_time=at)

    def traceparent(self) -> str:
        """W3C's, for whoever works on for `parent`."""
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, set_span_in_context(self.parent, _NOBODY))
        return carrier["traceparent"]


@contextmanager
def request_spans(tracer: Tracer, name: str, traceparent: str) -> Iterator[RequestSpans | None]:
    """Trace what the block does; None where the sampler, or the caller's `traceparent`, says not to.

    Nothing else is taken from the caller: `tracestate` and `baggage` are text of its own.
    """
    parent = _TRACE_CONTEXT.extract({"traceparent": traceparent}, _NOBODY)
    root = tracer.start_span(name, parent, SpanKind.SERVER)
    spans = RequestSpans(tracer, root) if root.is_recording() else None
    token = CURRENT.set(spans)
    try:
        yield spans
    finally:
        CURRENT.reset(token)
        root.end()
