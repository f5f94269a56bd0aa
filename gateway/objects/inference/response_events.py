"""The stream of a response: OpenAI's events, in their order, numbered.

response.created, response.in_progress
    response.output_item.added
        response.content_part.added
            response.output_text.delta …
            response.output_text.done
        response.content_part.done
      or, for reasoning, the same with
        response.reasoning_text.delta …
        response.reasoning_text.done
      or
        response.function_call_arguments.delta …
        response.function_call_arguments.done
      or
        response.custom_tool_call_input.delta
        response.custom_tool_call_input.done
    response.output_item.done
response.completed, or response.incomplete, or response.failed
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Literal

from loragate.gateway.errors import ApiError
from loragate.gateway.generation.output import Completion, TextDelta, TokenLogprob
from loragate.gateway.objects.inference.completion_head import TokenSums
from loragate.gateway.objects.inference.response_calls import CallItem, CustomItem
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.response_text import MessageItem, ThoughtItem
from loragate.gateway.objects.inference.responses import (
    ItemStatus,
    OutputItem,
    ResponseFailure,
    ResponseHead,
    ResponseObject,
    ResponseUsage,
)
from loragate.gateway.tools.message import MoreArguments, Piece, ToolCall
from loragate.gateway.tools.types import Content

Item = MessageItem | CallItem | CustomItem | ThoughtItem


def whole_response(head: ResponseHead, completion: Completion) -> ResponseObject:
    """Return the response with which a stream of the same completion ends."""
    delta = TextDelta(
        0,
        completion.text,
        completion.tokens,
        completion.logprobs,
        completion.finish_reason,
        completion.cached_tokens,
        completion.reasoning,
        completion.reasoning_tokens,
    )
    *_, last = ResponseEvents(head).push(delta)
    return last["response"]


class ResponseEvents:
    """The events of one response, numbered from `first`. `failure` is the last event of one that failed."""

    def __init__(self, head: ResponseHead, first: int = 0) -> None:
        self._head = head
        tools = head.request.tools
        self._reader = tools.reader() if tools is not None else None
        self._numbers = count(first)
        self._started = False
        self._output: list[OutputItem] = []
        self._item: Item | None = None
        self._sums = TokenSums()

    async def stream(self, deltas: AsyncGenerator[TextDelta, None]) -> AsyncGenerator[ResponseEvent, None]:
        """Yield all events."""
        async with aclosing(deltas):
            async for delta in deltas:
                for event in self.push(delta):
                    yield event

    def push(self, delta: TextDelta) -> Iterator[ResponseEvent]:
        """Yield the events that a delta results in."""
        if not self._started:
            self._started = True
            yield self._event("response.created", self._head.document("in_progress"))
            yield self._event("response.in_progress", self._head.document("in_progress"))
        self._sums.add(delta)
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        logprobs = delta.logprobs if self._head.body.wants_logprobs else ()
        for piece in self._read(delta):
            yield from self._piece(piece, logprobs)
            logprobs = ()
        if delta.finish_reason is not None:
            yield from self._finish(complete=delta.finish_reason == "stop")

    def failure(self, error: ApiError) -> ResponseEvent:
        """Return the event that replaces all further ones."""
        failure: ResponseFailure = {
            "code": "rate_limit_exceeded" if error.status == 429 else "server_error",
            "message": error.message,
        }
        return self._event("response.failed", self._head.document("failed", self._output, self._usage, failure))

    def cancelled(self) -> ResponseObject:
        """Return the response with the output that it has so far."""
        output = list(self._output)
        if self._item is not None:
            output.append(self._item.document("incomplete"))
        return self._head.document("cancelled", output, self._usage)

    def _read(self, delta: TextDelta) -> list[Piece]:
        if self._reader is None:
            return [Content(delta.text)] if delta.text or delta.logprobs else []
        pieces = self._reader.push(delta.text)
        return pieces if delta.finish_reason is None else pieces + self._reader.finish()

    def _think(self, text: str) -> Iterator[ResponseEvent]:
        if not isinstance(self._item, ThoughtItem):
            yield from self._close("completed")
            summarized = self._head.body.reasoning is not None and self._head.body.reasoning.wanted_summary is not None
            yield from self._open(ThoughtItem(self._head.id, len(self._output), self._numbers, summarized=summarized))
        assert isinstance(self._item, ThoughtItem)
        yield from self._item.more(text)

    def _piece(self, piece: Piece, logprobs: Sequence[TokenLogprob]) -> Iterator[ResponseEvent]:
        match piece:
            case ToolCall():
                yield from self._close("completed")
                yield from self._open(self._new_call(piece))
            case MoreArguments(text=text):
                assert isinstance(self._item, CallItem | CustomItem)
                yield from self._item.more(text)
            case Content(text=text):
                if not isinstance(self._item, MessageItem):
                    yield from self._close("completed")
                    yield from self._open(self._new_message())
                assert isinstance(self._item, MessageItem)
                yield self._item.more(text, logprobs)

    def _finish(self, *, complete: bool) -> Iterator[ResponseEvent]:
        if self._item is None and not self._output:
            yield from self._open(self._new_message())
        if complete:
            yield from self._close("completed")
            yield self._event("response.completed", self._head.document("completed", self._output, self._usage))
        else:
            yield from self._close("incomplete")
            yield self._event("response.incomplete", self._head.document("incomplete", self._output, self._usage))

    def _new_message(self) -> MessageItem:
        return MessageItem(self._head.id, len(self._output), self._head.request.base.tokenizer, self._numbers)

    def _new_call(self, call: ToolCall) -> CallItem | CustomItem:
        body = self._head.body
        kind = CustomItem if call.custom else CallItem
        return kind(self._head.id, len(self._output), call.id, call.name, self._numbers, body.namespaces.get(call.name))

    def _open(self, item: Item) -> Iterator[ResponseEvent]:
        self._item = item
        yield from item.opened()

    def _close(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        if self._item is not None:
            yield from self._item.closed(status)
            self._output.append(self._item.document(status))
            self._item = None

    @property
    def _usage(self) -> ResponseUsage:
        return self._head.usage(self._sums)

    def _event(
        self,
        type_: Literal[
            "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
        ],
        response: ResponseObject,
    ) -> ResponseEvent:
        return {"type": type_, "response": response, "sequence_number": next(self._numbers)}
