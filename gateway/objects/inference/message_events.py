"""The stream of a message: Anthropic's events, in their order.

message_start, ping
    content_block_start
        content_block_delta …
    content_block_stop
message_delta
message_stop
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Literal, NotRequired, cast

import pydantic_core
from typing_extensions import TypedDict

from loragate.gateway.generation.output import Completion, TextDelta
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import TokenSums
from loragate.gateway.objects.inference.messages import (
    ContentBlock,
    Message,
    MessageHead,
    MessageText,
    MessageThought,
    MessageToolUse,
    MessageUsage,
    StopReason,
)
from loragate.gateway.tools.message import MoreArguments, Piece, ToolCall
from loragate.gateway.tools.types import Content


class MessageDelta(TypedDict):
    """What a `content_block_delta` adds to its block, or how a `message_delta` ends the message."""

    type: NotRequired[Literal["text_delta", "thinking_delta", "signature_delta", "input_json_delta"]]
    text: NotRequired[str]
    thinking: NotRequired[str]
    signature: NotRequired[str]
    partial_json: NotRequired[str]
    stop_reason: NotRequired[StopReason]
    stop_sequence: NotRequired[str | None]


class MessageEvent(TypedDict):
    """An event of a stream. `type` names its kind, on which the other fields depend.

    The last event is `message_stop`, or `error` with the error object.
    """

    type: Literal[
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message: NotRequired[Message]
    index: NotRequired[Count]
    content_block: NotRequired[ContentBlock]
    delta: NotRequired[MessageDelta]
    usage: NotRequired[MessageUsage]


def whole_message(head: MessageHead, completion: Completion) -> Message:
    """Return the message that a stream of the same completion adds up to."""
    delta = TextDelta(
        0,
        completion.text,
        completion.tokens,
        completion.logprobs,
        completion.finish_reason,
        completion.cached_tokens,
        completion.reasoning,
        completion.reasoning_tokens,
        completion.stop,
    )
    events = MessageEvents(head)
    *_, end, _ = events.push(delta)
    return head.document(events.content, end["usage"], end["delta"]["stop_reason"], end["delta"]["stop_sequence"])


class MessageEvents:
    """The events of one message. `content` has the blocks that are complete."""

    def __init__(self, head: MessageHead) -> None:
        self.content: list[ContentBlock] = []
        self._head = head
        tools = head.request.tools
        self._reader = tools.reader() if tools is not None else None
        self._started = False
        self._block: ContentBlock | None = None
        self._parts: list[str] = []  # of the block's text, reasoning or arguments
        self._sums = TokenSums()

    async def stream(self, deltas: AsyncGenerator[TextDelta, None]) -> AsyncGenerator[MessageEvent, None]:
        """Yield all events."""
        async with aclosing(deltas):
            async for delta in deltas:
                for event in self.push(delta):
                    yield event

    def push(self, delta: TextDelta) -> Iterator[MessageEvent]:
        """Yield the events that a delta results in."""
        self._sums.add(delta)
        if not self._started:
            self._started = True
            yield {"type": "message_start", "message": self._head.document((), self._usage)}
            yield {"type": "ping"}
        if delta.reasoning:
            if self._kind != "thinking":
                yield from self._open({"type": "thinking", "thinking": "", "signature": ""})
            yield self._more({"type": "thinking_delta", "thinking": delta.reasoning}, delta.reasoning)
        for piece in self._read(delta):
            yield from self._piece(piece)
        if delta.finish_reason is not None:
            yield from self._finish(delta)

    def _read(self, delta: TextDelta) -> list[Piece]:
        if self._reader is None:
            return [Content(delta.text)] if delta.text else []
        pieces = self._reader.push(delta.text)
        return pieces if delta.finish_reason is None else pieces + self._reader.finish()

    def _piece(self, piece: Piece) -> Iterator[MessageEvent]:
        match piece:
            case ToolCall(id=id_, name=name):
                own = "toolu_" + id_.removeprefix("call_")
                yield from self._open({"type": "tool_use", "id": own, "name": name, "input": {}})
            case MoreArguments(text=text):
                yield self._more({"type": "input_json_delta", "partial_json": text}, text)
            case Content(text=text):
                if self._kind != "text":
                    yield from self._open({"type": "text", "text": ""})
                yield self._more({"type": "text_delta", "text": text}, text)

    def _finish(self, delta: TextDelta) -> Iterator[MessageEvent]:
        yield from self._close()
        end: MessageDelta = {"stop_reason": self._stop_reason(delta), "stop_sequence": delta.stop}
        yield {"type": "message_delta", "delta": end, "usage": self._usage}
        yield {"type": "message_stop"}

    def _stop_reason(self, delta: TextDelta) -> StopReason:
        if delta.finish_reason == "length":
            return "max_tokens"
        if delta.stop is not None:
            return "stop_sequence"
        return "tool_use" if any(block["type"] == "tool_use" for block in self.content) else "end_turn"

    def _open(self, block: ContentBlock) -> Iterator[MessageEvent]:
        yield from self._close()
        self._block, self._parts = block, []
        yield {"type": "content_block_start", "index": len(self.content), "content_block": block}

    def _more(self, delta: MessageDelta, text: str) -> MessageEvent:
        self._parts.append(text)
        return {"type": "content_block_delta", "index": len(self.content), "delta": delta}

    def _close(self) -> Iterator[MessageEvent]:
        block, self._block = self._block, None
        if block is None:
            return
        index = len(self.content)
        if block["type"] == "thinking":
            signature: MessageDelta = {"type": "signature_delta", "signature": ""}
            yield {"type": "content_block_delta", "index": index, "delta": signature}
        yield {"type": "content_block_stop", "index": index}
        self.content.append(_completed(block, "".join(self._parts)))

    @property
    def _kind(self) -> str | None:
        return None if self._block is None else self._block["type"]

    @property
    def _usage(self) -> MessageUsage:
        return self._head.usage(self._sums)


def _completed(block: ContentBlock, text: str) -> ContentBlock:
    if block["type"] == "text":
        return cast(MessageText, {**block, "text": text})
    if block["type"] == "thinking":
        return cast(MessageThought, {**block, "thinking": text})
    return cast(MessageToolUse, {**block, "input": _arguments(text)})


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call. Of those that end in the middle, what is complete is returned; text that is no
    JSON object has none."""
    try:
        arguments = pydantic_core.from_json(text, allow_inf_nan=False, allow_partial=True)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}
