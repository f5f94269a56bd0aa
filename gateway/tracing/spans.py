"""The spans of one traced request.

All spans hold only names of this program, ids and numbers. They do not hold what a client wrote, nor the messages of
errors, which may quote it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from loragate.gateway.tracing.current import CURRENT

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_NO_PARENT = Context()  # used explicitly, because the default is the process's own context


def set_failed(span: Span, reason: str) -> None:
    """Mark the span as failed; `reason` is a name of this program."""
    span.set_attribute("error.type", reason)
    span.set_status(Status(StatusCode.ERROR))


def now_ns() -> int:
    """Return the time as spans count it: nanoseconds of Unix time."""
    return time.time_ns()


class RequestSpans:
    """`root` is the request's own span, `parent` the span that new spans belong to."""

    def __init__(self, tracer: Tracer, root: Span) -> None:
        self.root = root
        self.parent = root
        self._tracer = tracer

    @property
    def trace_id(self) -> str:
        """The trace's id in hexadecimal, as logs name it."""
        return format_trace_id(self.root.get_span_context().trace_id)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Open a span around the block; of an exception it records only the name."""
        span = self.begin(name)
        try:
            yield
        except BaseException as error:
            set_failed(span, type(error).__name__)
            raise
        finally:
            span.end()

    def begin(self, name: str, kind: SpanKind = SpanKind.INTERNAL, *, at: int | None = None) -> Span:
        """Open a span that its caller ends; `at` is in nanoseconds of Unix time, by default now."""
        return self._tracer.start_span(name, set_span_in_context(self.parent, _NO_PARENT), kind, start_time=at)

    def traceparent(self) -> str:
        """Return the W3C header that makes `parent` the parent of another process's spans."""
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, set_span_in_context(self.parent, _NO_PARENT))
        return carrier["traceparent"]


class RequestTracer:
    """Opens the spans of requests. `trusted` says whether a caller's `traceparent` is."""

    def __init__(self, tracer: Tracer, *, trusted: bool) -> None:
        self._tracer = tracer
        self._trusted = trusted

    @contextmanager
    def request(self, name: str, traceparent: str) -> Iterator[RequestSpans | None]:
        """Trace the block. Yield None if the sampler, or the `traceparent` of a trusted caller, opts out.

        A stranger's `traceparent` decides nothing: it could flood the collector, hide requests, or add spans to
        another's trace. It becomes a link. Nothing else is taken from any caller, because `tracestate` and `baggage`
        are free text.
        """
        theirs = _TRACE_CONTEXT.extract({"traceparent": traceparent}, _NO_PARENT)
        linked = get_current_span(theirs).get_span_context()
        if self._trusted or not linked.is_valid:
            root = self._tracer.start_span(name, theirs, SpanKind.SERVER)
        else:
            root = self._tracer.start_span(name, _NO_PARENT, SpanKind.SERVER, links=[Link(linked)])
        spans = RequestSpans(self._tracer, root) if root.is_recording() else None
        token = CURRENT.set(spans)
        try:
            yield spans
        finally:
            CURRENT.reset(token)
            root.end()
