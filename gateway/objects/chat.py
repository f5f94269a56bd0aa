"""Chat completions, whole and in chunks."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation.output import Completion, FinishReason, TextDelta, TokenLogprob
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.logprobs import ChatLogprobs, chat_logprobs
from loragate.gateway.objects.response_head import Answer, CompletionBase, Usage
from loragate.gateway.tools import message as parsed
from loragate.gateway.tools.message import MoreArguments, Piece, ToolUse
from loragate.gateway.tools.types import Content

ChatFinishReason = Literal["stop", "length", "tool_calls"]


class FunctionCall(TypedDict):
    """`arguments` is JSON as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """The model asks for a function to be called."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(TypedDict):
    """`content` is null where there are only calls."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(TypedDict):
    """One of `n`."""

    index: Count
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason


class ChatCompletion(CompletionBase):
    """The whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(TypedDict):
    """The name comes first, the arguments in pieces."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """The first of a call has its id, its type and its name."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class MessageDelta(TypedDict):
    """What a chunk adds to the message; nothing in a choice's last one."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    tool_calls: NotRequired[list[ToolCallDelta]]


class ChunkChoice(TypedDict):
    """`finish_reason` comes with a choice's last chunk."""

    index: Count
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None


class ChatCompletionChunk(CompletionBase):
    """An event of a stream. With `stream_options.include_usage` the last one has the usage and no choices.

    `[DONE]` follows. A failure after the first event comes as the error envelope, and no `[DONE]` follows it.
    """

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: NotRequired[Usage | None]


def chat_completion(answer: Answer, completions: Sequence[Completion]) -> dict[str, Any]:
    """The whole answer."""
    choices = [whole_choice(answer, completion) for completion in completions]
    usage = answer.usage(sum(c.tokens for c in completions), sum(c.cached_tokens for c in completions))
    return {**answer.head("chat.completion"), "choices": choices, "usage": usage}


async def chat_chunks(
    answer: Answer, deltas: AsyncGenerator[TextDelta, None], *, include_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """For each choice its role, its text and calls, and its finish reason; at the end the usage, if wanted."""
    head = answer.head("chat.completion.chunk") | ({"usage": None} if include_usage else {})
    choices = [ChunkedChoice(answer, index) for index in range(answer.request.n)]
    tokens = cached = 0
    async with aclosing(deltas):
        async for delta in deltas:
            tokens += delta.tokens
            cached += delta.cached_tokens
            for chunk in choices[delta.index].push(delta):
                yield {**head, "choices": [chunk]}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage(tokens, cached)}


def whole_choice(answer: Answer, completion: Completion) -> dict[str, Any]:
    """The content is null where there are only calls."""
    pieces = _pieces(answer.request.tools, completion.text)
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    calls = whole_calls(pieces)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    return {
        "index": completion.index,
        "message": message,
        "logprobs": _logprobs(answer, completion.logprobs),
        "finish_reason": _finish_reason(answer.request.tools, completion.finish_reason, called=bool(calls)),
    }


class ChunkedChoice:
    """One choice's text on its way into chunks. The role is in the first; logprobs wait for the next chunk."""

    def __init__(self, answer: Answer, index: int) -> None:
        self._answer = answer
        self._index = index
        tools = answer.request.tools
        self._reader = tools.reader() if tools is not None else None
        self._begun = False
        self._called = False
        self._logprobs: list[TokenLogprob] = []

    def push(self, delta: TextDelta) -> Iterator[dict[str, Any]]:
        """The chunks that a delta of this choice makes."""
        self._logprobs.extend(delta.logprobs)
        pieces = self._read(delta)
        if not self._begun and (pieces or self._reader is None or delta.finish_reason is not None):
            self._begun = True
            yield self._role(None if pieces and isinstance(pieces[0], parsed.ToolCall) else "")
        for piece in pieces:
            yield self._piece(piece)
        if delta.finish_reason is not None:
            reason = _finish_reason(self._answer.request.tools, delta.finish_reason, called=self._called)
            yield self._chunk({}, reason)

    def _read(self, delta: TextDelta) -> list[Piece]:
        if self._reader is None:
            return [Content(delta.text)] if delta.text or delta.logprobs else []
        pieces = self._reader.push(delta.text)
        return pieces if delta.finish_reason is None else pieces + self._reader.finish()

    def _role(self, content: str | None) -> dict[str, Any]:
        return _chunk(self._index, {"role": "assistant", "content": content}, None, None)

    def _piece(self, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Content):
            return self._chunk({"content": piece.text})
        self._called = self._called or isinstance(piece, parsed.ToolCall)
        return self._chunk({"tool_calls": [call_delta(piece)]})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        logprobs = None if reason and not self._logprobs else _logprobs(self._answer, self._logprobs)
        self._logprobs = []
        return _chunk(self._index, delta, logprobs, reason)


def _chunk(index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _pieces(tools: ToolUse | None, text: str) -> list[Piece]:
    if tools is None:
        return [Content(text)]
    reader = tools.reader()
    return reader.push(text) + reader.finish()


def _finish_reason(tools: ToolUse | None, reason: FinishReason, *, called: bool) -> str:
    """As OpenAI has it: a call that the caller named ends with "stop", one that the model chose does not."""
    if tools is None or not called or tools.named or reason == "length":
        return reason
    return "tool_calls"


def _logprobs(answer: Answer, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    if not answer.request.sampling.HasField("top_logprobs"):
        return None
    return chat_logprobs(answer.request.base.tokenizer, tokens)


def call_delta(piece: parsed.ToolCall | MoreArguments) -> dict[str, Any]:
    """The first delta of a call has its id and name, the others more of its arguments."""
    if isinstance(piece, MoreArguments):
        return {"index": piece.index, "function": {"arguments": piece.text}}
    return {"index": piece.index, **_call(piece)}


def whole_calls(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    """The message's calls in their order."""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, parsed.ToolCall):
            calls.append(_call(piece))
        elif isinstance(piece, MoreArguments):
            calls[piece.index]["function"]["arguments"] += piece.text
    return calls


def _call(call: parsed.ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
