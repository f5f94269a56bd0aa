"""The items of a response's output, and the events that they come in."""

import secrets
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.logprobs import TokenLogprob, chat_logprobs
from loragate.prompts.tokenizer import TextTokenizer

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    """Text, with the logprobs of its tokens where they were asked for."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[TokenLogprob]


class OutputMessage(TypedDict):
    """The model says something."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class FunctionCallItem(TypedDict):
    """The model asks for a function to be called; what came of it is sent back under the same `call_id`."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


def new_item_id(prefix: str) -> str:
    """Such as "msg_…"."""
    return f"{prefix}_{secrets.token_hex(24)}"


class MessageItem:
    """The model says something."""

    def __init__(self, index: int, tokenizer: TextTokenizer) -> None:
        self._place = {"item_id": new_item_id("msg"), "output_index": index}
        self._tokenizer = tokenizer
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []

    def opened(self) -> Iterator[dict[str, Any]]:
        """An empty message, with one empty part."""
        yield _item_event("added", self._place, {**self.document("in_progress"), "content": []})
        yield self._in_part("response.content_part.added", part=self._part)

    def more(self, text: str, logprobs: Sequence[generated.TokenLogprob]) -> dict[str, Any]:
        """The text goes on."""
        self._text += text
        told = chat_logprobs(self._tokenizer, logprobs)["content"]
        self._logprobs += told
        return self._in_part("response.output_text.delta", delta=text, logprobs=list(map(_brief, told)))

    def closed(self, status: ItemStatus) -> Iterator[dict[str, Any]]:
        """All of the text, the part, the message."""
        logprobs = list(map(_brief, self._logprobs))
        yield self._in_part("response.output_text.done", text=self._text, logprobs=logprobs)
        yield self._in_part("response.content_part.done", part=self._part)
        yield _item_event("done", self._place, self.document(status))

    def document(self, status: ItemStatus) -> dict[str, Any]:
        """As it stands."""
        id_ = self._place["item_id"]
        return {"id": id_, "type": "message", "status": status, "role": "assistant", "content": [self._part]}

    @property
    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(self._logprobs)}

    def _in_part(self, type_: str, **fields: Any) -> dict[str, Any]:
        return {"type": type_, **self._place, "content_index": 0, **fields}


class CallItem:
    """The model calls a function."""

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self._place = {"item_id": new_item_id("fc"), "output_index": index}
        self._call_id = call_id
        self._name = name
        self._arguments = ""

    def opened(self) -> Iterator[dict[str, Any]]:
        """Which function, without its arguments."""
        yield _item_event("added", self._place, self.document("in_progress"))

    def more(self, text: str) -> dict[str, Any]:
        """The arguments go on."""
        self._arguments += text
        return {"type": "response.function_call_arguments.delta", **self._place, "delta": text}

    def closed(self, status: ItemStatus) -> Iterator[dict[str, Any]]:
        """All of the arguments, and the call."""
        yield {"type": "response.function_call_arguments.done", **self._place, "arguments": self._arguments}
        yield _item_event("done", self._place, self.document(status))

    def document(self, status: ItemStatus) -> dict[str, Any]:
        """As it stands."""
        return {
            "id": self._place["item_id"],
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
        }


def _item_event(what: str, place: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.output_item.{what}", "output_index": place["output_index"], "item": item}


def _brief(logprob: dict[str, Any]) -> dict[str, Any]:
    """As events have it: without bytes."""
    alternatives = [{"token": each["token"], "logprob": each["logprob"]} for each in logprob["top_logprobs"]]
    return {"token": logprob["token"], "logprob": logprob["logprob"], "top_logprobs": alternatives}
