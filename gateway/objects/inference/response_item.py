"""An item of a response's output while it grows, and the events in which it is sent."""

from collections.abc import Iterator
from typing import Literal, NotRequired

from typing_extensions import TypedDict, Unpack

from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.responses import (
    OutputItem,
    OutputText,
    ReasoningText,
    ResponseObject,
    SummaryText,
    new_item_id,
)

EventType = Literal[
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
]


class BriefAlternative(TypedDict):
    """A candidate token."""

    token: str
    logprob: float


class BriefLogprob(BriefAlternative):
    """A generated token, and the most probable candidates in its place."""

    top_logprobs: list[BriefAlternative]


class EventFields(TypedDict):
    """What events carry beside their kind, number and place."""

    response: NotRequired[ResponseObject]
    item: NotRequired[OutputItem]
    content_index: NotRequired[Count]
    summary_index: NotRequired[Count]
    part: NotRequired[OutputText | ReasoningText | SummaryText]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    input: NotRequired[str]
    logprobs: NotRequired[list[BriefLogprob]]


class ResponseEvent(EventFields):
    """An event of a stream. `type` names its kind, `sequence_number` its position; the other fields depend on the kind.

    The last event is `response.completed`, `response.incomplete` or `response.failed`; no `[DONE]` follows.
    """

    type: EventType
    sequence_number: Count
    output_index: NotRequired[Count]
    item_id: NotRequired[str]


class GrowingItem:
    """An item at a position of the output. `numbers` gives each event its number."""

    def __init__(self, response_id: str, prefix: str, index: int, numbers: Iterator[int]) -> None:
        self.id = new_item_id(prefix, response_id)
        self._index = index
        self._numbers = numbers

    def added(self, item: OutputItem) -> ResponseEvent:
        """Return the event with which the item begins."""
        return self._item_event("response.output_item.added", item)

    def done(self, item: OutputItem) -> ResponseEvent:
        """Return the event with which the item ends."""
        return self._item_event("response.output_item.done", item)

    def event(self, type_: EventType, **fields: Unpack[EventFields]) -> ResponseEvent:
        """Return an event about a part of the item."""
        return {
            "type": type_,
            "item_id": self.id,
            "output_index": self._index,
            **fields,
            "sequence_number": next(self._numbers),
        }

    def _item_event(
        self, type_: Literal["response.output_item.added", "response.output_item.done"], item: OutputItem
    ) -> ResponseEvent:
        return {"type": type_, "output_index": self._index, "item": item, "sequence_number": next(self._numbers)}
