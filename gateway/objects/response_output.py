"""The items of a response's output, and the events in which they are sent."""

from collections.abc import Iterator, Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.logprobs import TokenLogprob, token_logprobs
from loragate.gateway.objects.responses import (
    FunctionCallItem,
    ItemStatus,
    OutputMessage,
    OutputText,
    ResponseObject,
    new_item_id,
)
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
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: Count
    response: NotRequired[ResponseObject]
    output_index: NotRequired[Count]
    item: NotRequired[OutputMessage | FunctionCallItem]
    item_id: NotRequired[str]
    content_index: NotRequired[Count]
    part: NotRequired[OutputText]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
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


class CallItem:
    """A call of a function, as its arguments grow. `numbers` gives each event its number."""

    def __init__(self, index: int, call_id: str, name: str, numbers: Iterator[int]) -> None:
        self._id = new_item_id("fc")
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

    def more(self, text: str) -> ResponseEvent:
        """Append to the arguments; return the event."""
        self._arguments += text
        return {
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
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
        }


def _brief(entry: TokenLogprob) -> BriefLogprob:
    """Return the entry without bytes, as events have it."""
    alternatives: list[BriefAlternative] = [
        {"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]
    ]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": alternatives}
