"""The spans of the request that this task works on. While nobody traces it, asking for one costs a look-up."""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from loragate.gateway.calls.inference_request import Ask

if TYPE_CHECKING:
    from loragate.gateway.calls.span import ModelCall
    from loragate.gateway.tracing.spans import RequestSpans

CURRENT: "ContextVar[RequestSpans | None]" = ContextVar("loragate_spans", default=None)
_OFF: AbstractContextManager[None] = nullcontext()


def step(name: str) -> AbstractContextManager[None]:
    """A span around the block."""
    spans = CURRENT.get()
    return _OFF if spans is None else spans.step(name)


def model_call(ask: Ask, base_model: str) -> "ModelCall | None":
    """A span of the admitted request, which its caller ends; None while nobody traces it."""
    spans = CURRENT.get()
    return None if spans is None else spans.model_call(ask, base_model)
