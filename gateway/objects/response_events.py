"""A response on its way: OpenAI's events, in their order, numbered.

response.created, response.in_progress
    response.output_item.added
        response.content_part.added
            response.output_text.delta …
            response.output_text.done
        response.content_part.done
      or
        response.function_call_arguments.delta …
        response.function_call_arguments.done
    response.output_item.done
response.completed, or response.incomplete, or response.failed
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.errors import ApiError
from loragate.gateway.generation.output import Completion, TextDelta
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.response_output import (
    CallItem,
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OutputMessage,
    OutputText,
)
from loragate.gateway.objects.responses import ResponseHead, ResponseObject
from loragate.gateway.tools.message import MoreArguments, Piece, ToolCall
from loragate.gateway.tools.types import Content


class BriefAlternative(TypedDict):
    """A token that might have been."""

    token: str
    logprob: float


class BriefLogprob(BriefAlternative):
    """A token, and the likeliest in its place."""

    top_logprobs: list[BriefAlternative]


class ResponseEvent(TypedDict):
    """An event: `type` says which, `sequence_number` its place, the others what has come.

    The last is `response.completed`, `response.incomplete` or `response.failed`; no `[DONE]` follows.
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


Event = dict[str, Any]


def whole_response(head: ResponseHead, completion: Completion) -> dict[str, Any]:
    """What a stream of the same completion ends with."""
    events = ResponseEvents(head)
    delta = TextDelta(
        0,
        completion.text,
        completion.tokens,
        completion.logprobs,
        completion.finish_reason,
        completion.cached_tokens,
    )
    *_, last = events.push(delta)
    document: dict[str, Any] = last["response"]
    return document


class ResponseEvents:
    """One response's events. `failure` says that it broke off."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        tools = head.request.tools
        self._reader = tools.reader() if tools is not None else None
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._item: MessageItem | CallItem | None = None
        self._tokens = self._cached = 0

    async def stream(self, deltas: AsyncGenerator[TextDelta, None]) -> AsyncGenerator[Event, None]:
        """All events."""
        async with aclosing(deltas):
            async for delta in deltas:
                for event in self.push(delta):
                    yield event

    def push(self, delta: TextDelta) -> Iterator[Event]:
        """Those that a delta makes."""
        if self._number == 0:
            yield self._of_response("created", self._head.document("in_progress"))
            yield self._of_response("in_progress", self._head.document("in_progress"))
        self._tokens += delta.tokens
        self._cached += delta.cached_tokens
        logprobs = delta.logprobs if self._head.body.wants_logprobs else ()
        for piece in self._read(delta):
            yield from self._piece(piece, logprobs)
            logprobs = ()
        if delta.finish_reason is not None:
            yield from self._finish(complete=delta.finish_reason == "stop")

    def failure(self, error: ApiError) -> Event:
        """The last event, instead of any other."""
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        said = {"code": code, "message": error.message}
        return self._of_response("failed", self._head.document("failed", self._output, self._usage, said))

    def _read(self, delta: TextDelta) -> list[Piece]:
        if self._reader is None:
            return [Content(delta.text)] if delta.text or delta.logprobs else []
        pieces = self._reader.push(delta.text)
        return pieces if delta.finish_reason is None else pieces + self._reader.finish()

    def _piece(self, piece: Piece, logprobs: Any) -> Iterator[Event]:
        match piece:
            case ToolCall():
                yield from self._close("completed")
                yield from self._open(CallItem(len(self._output), piece.id, piece.name))
            case MoreArguments(text=text):
                assert isinstance(self._item, CallItem)
                yield self._numbered(self._item.more(text))
            case Content(text=text):
                if not isinstance(self._item, MessageItem):
                    yield from self._close("completed")
                    yield from self._open(MessageItem(len(self._output), self._head.request.base.tokenizer))
                assert isinstance(self._item, MessageItem)
                yield self._numbered(self._item.more(text, logprobs))

    def _finish(self, *, complete: bool) -> Iterator[Event]:
        if self._item is None and not self._output:
            yield from self._open(MessageItem(0, self._head.request.base.tokenizer))
        status: ItemStatus = "completed" if complete else "incomplete"
        yield from self._close(status)
        yield self._of_response(status, self._head.document(status, self._output, self._usage))

    def _open(self, item: MessageItem | CallItem) -> Iterator[Event]:
        self._item = item
        yield from map(self._numbered, item.opened())

    def _close(self, status: ItemStatus) -> Iterator[Event]:
        if self._item is not None:
            yield from map(self._numbered, self._item.closed(status))
            self._output.append(self._item.document(status))
            self._item = None

    @property
    def _usage(self) -> dict[str, Any]:
        return self._head.usage(self._tokens, self._cached)

    def _of_response(self, what: str, document: dict[str, Any]) -> Event:
        return self._numbered({"type": f"response.{what}", "response": document})

    def _numbered(self, event: Event) -> Event:
        self._number += 1
        return {**event, "sequence_number": self._number - 1}
