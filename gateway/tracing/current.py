"""The spans of the request that the current task works on. For an untraced request, `step` costs one look-up."""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind


class Spans(Protocol):
    """One traced request: `root` is its own span, `parent` what new spans belong to."""

    root: "Span"
    parent: "Span"

    @property
    def trace_id(self) -> str:
        """Return the trace's id in hexadecimal, as logs name it."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """Open a span around the block."""

    def begin(self, name: str, kind: "SpanKind" = ..., *, at: int | None = None) -> "Span":
        """Open a span that its caller ends."""

    def traceparent(self) -> str:
        """Return the W3C header that names `parent`."""


CURRENT: ContextVar[Spans | None] = ContextVar("loragate_spans", default=None)
_OFF: AbstractContextManager[None] = nullcontext()


def step(name: str) -> AbstractContextManager[None]:
    """Open a span around the block if the request is traced."""
    spans = CURRENT.get()
    return _OFF if spans is None else spans.step(name)
