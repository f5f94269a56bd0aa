"""The items of a response's output, and the events in which they are sent."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.logprobs import TokenLogprob, token_logprobs
from loragate.gateway.objects.inference.responses import (
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseObject,
    SummaryText,
    new_item_id,
)
from loragate.gateway.schemas.inference.response_items import CUSTOM_INPUT
from loragate.prompts.json_text import parse_json
from loragate.prompts.tokenizer import TextTokenizer


class BriefAlternative(TypedDict):
    """A candidate token."""

    token: str
    logprob: float


class BriefLogprob(BriefAlternative):
    """A generated token, and the most probable candidates in its place."""

    top_logprobs: list[BriefAlternative]


class ResponseEvent(TypedDict):
    """An event of a stream. `type` names its kind, `sequence_number` its position; the other fields depend on the kind.

    The last event is `response.completed`, `response.incomplete` or `response.failed`; no `[DONE]` follows.
    """

    type: Literal[
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
    sequence_number: Count
    response: NotRequired[ResponseObject]
    output_index: NotRequired[Count]
    item: NotRequired[OutputItem]
    item_id: NotRequired[str]
    content_index: NotRequired[Count]
    summary_index: NotRequired[Count]
    part: NotRequired[OutputText | ReasoningText | SummaryText]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    input: NotRequired[str]
    logprobs: NotRequired[list[BriefLogprob]]


class MessageItem:
    """A message of the model, as it grows. `numbers` gives each event its number."""

    def __init__(self, index: int, tokenizer: TextTokenizer, numbers: Iterator[int]) -> None:
        self._id = new_item_id("msg")
        self._index = index
        self._tokenizer = tokenizer
        self._numbers = numbers
        self._text = ""
        self._logprobs: list[TokenLogprob] = []

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the events of an empty message with one empty part."""
        item: OutputMessage = {**self.document("in_progress"), "content": []}
        yield {
            "type": "response.output_item.added",
            "output_index": self._index,
            "item": item,
            "sequence_number": next(self._numbers),
        }
        yield {
            "type": "response.content_part.added",
            "item_id": self._id,
            "output_index": self._index,
            "content_index": 0,
            "part": self._part,
            "sequence_number": next(self._numbers),
        }

    def more(self, text: str, logprobs: Sequence[generated.TokenLogprob]) -> ResponseEvent:
        """Append to the text; return the event."""
        self._text += text
        entries = token_logprobs(self._tokenizer, logprobs)
        self._logprobs += entries
        return {
            "type": "response.output_text.delta",
            "item_id": self._id,
            "output_index": self._index,
            "content_index": 0,
            "delta": text,
            "logprobs": list(map(_brief, entries)),
            "sequence_number": next(self._numbers),
        }

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole text, the part and the message."""
        yield {
            "type": "response.output_text.done",
            "item_id": self._id,
            "output_index": self._index,
            "content_index": 0,
            "text": self._text,
            "logprobs": list(map(_brief, self._logprobs)),
            "sequence_number": next(self._numbers),
        }
        yield {
            "type": "response.content_part.done",
            "item_id": self._id,
            "output_index": self._index,
            "content_index": 0,
            "part": self._part,
            "sequence_number": next(self._numbers),
        }
        yield {
            "type": "response.output_item.done",
            "output_index": self._index,
            "item": self.document(status),
            "sequence_number": next(self._numbers),
        }

    def document(self, status: ItemStatus) -> OutputMessage:
        """Return the message as it is now."""
        return {"id": self._id, "type": "message", "status": status, "role": "assistant", "content": [self._part]}

    @property
    def _part(self) -> OutputText:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(self._logprobs)}


class ThoughtItem:
    """The reasoning of the model, as it grows. `numbers` gives each event its number.

    With `summarized`, the text is also the summary, which is all that some clients show.
    """

    def __init__(self, index: int, numbers: Iterator[int], *, summarized: bool) -> None:
        self._id = new_item_id("rs")
        self._index = index
        self._numbers = numbers
        self._summarized = summarized
        self._text = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the events of an empty item."""
        item: ReasoningItem = {**self.document("in_progress"), "content": [], "summary": []}
        yield {
            "type": "response.output_item.added",
            "output_index": self._index,
            "item": item,
            "sequence_number": next(self._numbers),
        }
        if self._summarized:
            event = self._event("response.reasoning_summary_part.added", "summary_index")
            yield {**event, "part": {"type": "summary_text", "text": ""}}
        event = self._event("response.content_part.added", "content_index")
        yield {**event, "part": {"type": "reasoning_text", "text": ""}}

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the reasoning; yield the events."""
        self._text += text
        if self._summarized:
            yield {**self._event("response.reasoning_summary_text.delta", "summary_index"), "delta": text}
        yield {**self._event("response.reasoning_text.delta", "content_index"), "delta": text}

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole reasoning."""
        if self._summarized:
            yield {**self._event("response.reasoning_summary_text.done", "summary_index"), "text": self._text}
            event = self._event("response.reasoning_summary_part.done", "summary_index")
            yield {**event, "part": {"type": "summary_text", "text": self._text}}
        yield {**self._event("response.reasoning_text.done", "content_index"), "text": self._text}
        event = self._event("response.content_part.done", "content_index")
        yield {**event, "part": {"type": "reasoning_text", "text": self._text}}
        yield {
            "type": "response.output_item.done",
            "output_index": self._index,
            "item": self.document(status),
            "sequence_number": next(self._numbers),
        }

    def document(self, status: ItemStatus) -> ReasoningItem:
        """Return the item as it is now."""
        summary: list[SummaryText] = [{"type": "summary_text", "text": self._text}] if self._summarized else []
        return {
            "id": self._id,
            "type": "reasoning",
            "status": status,
            "summary": summary,
            "content": [{"type": "reasoning_text", "text": self._text}],
            "encrypted_content": None,
        }

    def _event(self, type_: Any, part: Literal["summary_index", "content_index"]) -> ResponseEvent:
        event: ResponseEvent = {
            "type": type_,
            "item_id": self._id,
            "output_index": self._index,
            "sequence_number": next(self._numbers),
        }
        event[part] = 0
        return event


class CallItem:
    """A call of a function, as its arguments grow. `numbers` gives each event its number."""

    def __init__(
        self, index: int, call_id: str, name: str, numbers: Iterator[int], namespace: str | None = None
    ) -> None:
        self._id = new_item_id("fc")
        self._namespace = namespace
        self._index = index
        self._call_id = call_id
        self._name = name
        self._numbers = numbers
        self._arguments = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the function, without its arguments."""
        yield {
            "type": "response.output_item.added",
            "output_index": self._index,
            "item": self.document("in_progress"),
            "sequence_number": next(self._numbers),
        }

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the arguments; yield the event."""
        self._arguments += text
        yield {
            "type": "response.function_call_arguments.delta",
            "item_id": self._id,
            "output_index": self._index,
            "delta": text,
            "sequence_number": next(self._numbers),
        }

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole arguments and the call."""
        yield {
            "type": "response.function_call_arguments.done",
            "item_id": self._id,
            "output_index": self._index,
            "arguments": self._arguments,
            "sequence_number": next(self._numbers),
        }
        yield {
            "type": "response.output_item.done",
            "output_index": self._index,
            "item": self.document(status),
            "sequence_number": next(self._numbers),
        }

    def document(self, status: ItemStatus) -> FunctionCallItem:
        """Return the call as it is now."""
        item: FunctionCallItem = {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item


class CustomItem:
    """A call of a custom tool. Its input comes in one piece, once the arguments that the model writes are complete."""

    def __init__(
        self, index: int, call_id: str, name: str, numbers: Iterator[int], namespace: str | None = None
    ) -> None:
        self._id = new_item_id("ctc")
        self._index = index
        self._call_id = call_id
        self._name = name
        self._numbers = numbers
        self._namespace = namespace
        self._arguments = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the tool, without its input."""
        item: CustomCallItem = {**self.document("in_progress"), "input": ""}
        yield self._item_event("response.output_item.added", item)

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the arguments; yield nothing."""
        self._arguments += text
        yield from ()

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the input and the call."""
        yield {
            "type": "response.custom_tool_call_input.delta",
            "item_id": self._id,
            "output_index": self._index,
            "delta": self._input,
            "sequence_number": next(self._numbers),
        }
        yield {
            "type": "response.custom_tool_call_input.done",
            "item_id": self._id,
            "output_index": self._index,
            "input": self._input,
            "sequence_number": next(self._numbers),
        }
        yield self._item_event("response.output_item.done", self.document(status))

    def document(self, status: ItemStatus) -> CustomCallItem:
        """Return the call as it is now."""
        item: CustomCallItem = {
            "id": self._id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "input": self._input,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item

    @property
    def _input(self) -> str:
        """The argument; the arguments as they are, if the model wrote no such argument."""
        try:
            value = parse_json(self._arguments)
        except ValueError:
            return self._arguments
        text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
        return text if isinstance(text, str) else self._arguments

    def _item_event(
        self, type_: Literal["response.output_item.added", "response.output_item.done"], item: CustomCallItem
    ) -> ResponseEvent:
        return {"type": type_, "output_index": self._index, "item": item, "sequence_number": next(self._numbers)}


def _brief(entry: TokenLogprob) -> BriefLogprob:
    """Return the entry without bytes, as events have it."""
    alternatives: list[BriefAlternative] = [
        {"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]
    ]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": alternatives}
