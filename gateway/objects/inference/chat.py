"""Chat completions, whole and in chunks."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.generation.output import Completion, FinishReason, TextDelta
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import (
    CompletionBase,
    CompletionHead,
    TokenSums,
    Usage,
    token_sums,
)
from loragate.gateway.objects.inference.logprobs import ChatLogprobs, PromptTokens, chat_logprobs, prompt_logprobs
from loragate.gateway.tools import message as parsed
from loragate.gateway.tools.message import MoreArguments, Piece, ToolUse
from loragate.gateway.tools.types import Content

ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class FunctionCall(TypedDict):
    """A function's name and its arguments; `arguments` is a JSON object, encoded as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """A call of a function that the model requests."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class CustomCall(TypedDict):
    """A custom tool's name and its input."""

    name: str
    input: str


class CustomToolCall(TypedDict):
    """A call of a custom tool that the model requests."""

    id: str
    type: Literal["custom"]
    custom: CustomCall


class AssistantMessage(TypedDict):
    """The assistant's message. `content` is null if the message consists of tool calls only. It has `function_call`
    instead of `tool_calls` if the request has `functions`, their older name.

    `reasoning` is what the model wrote before its answer; `reasoning_content` is the same, if the server is set so.
    """

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall | CustomToolCall]]
    function_call: NotRequired[FunctionCall]


class ChatChoice(TypedDict):
    """One of the `n` completions."""

    index: Count
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason


class ChatCompletion(CompletionBase):
    """The whole chat completion. `prompt_logprobs` are there if the request has this field."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[PromptTokens]


class FunctionDelta(TypedDict):
    """A piece of a function call: its name comes first, then its arguments in pieces."""

    name: NotRequired[str]
    arguments: str


class CustomDelta(TypedDict):
    """A piece of a call of a custom tool: its name comes first, then its input in one piece."""

    name: NotRequired[str]
    input: str


class ToolCallDelta(TypedDict):
    """A piece of a call of a function or a custom tool. The first piece of a call has its id, its type and its name."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function", "custom"]]
    function: NotRequired[FunctionDelta]
    custom: NotRequired[CustomDelta]


class MessageDelta(TypedDict):
    """The part of the message that a chunk adds. It is empty in a choice's last chunk."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    reasoning: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallDelta]]
    function_call: NotRequired[FunctionDelta]


class ChunkChoice(TypedDict):
    """A piece of one of the `n` completions. `finish_reason` is null except in a choice's last chunk."""

    index: Count
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None


class ChatCompletionChunk(CompletionBase):
    """An event of a stream. With `stream_options.include_usage` the last event has the usage and no choices.

    A stream ends with `[DONE]`. An error after the first event is sent as the error envelope, without a `[DONE]`.
    """

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: NotRequired[Usage | None]


def chat_completion(head: CompletionHead, completions: Sequence[Completion]) -> ChatCompletion:
    """Return the whole completion."""
    whole: ChatCompletion = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
        "choices": [_whole_choice(head, completion) for completion in completions],
        "usage": head.usage(token_sums(completions)),
    }
    scores, top = completions[0].prompt, head.request.prompt_logprobs
    if scores is not None and top is not None:
        whole["prompt_logprobs"] = prompt_logprobs(head.request.base.tokenizer, scores, top)
    return whole


async def chat_chunks(
    head: CompletionHead,
    deltas: AsyncGenerator[TextDelta, None],
    *,
    include_usage: bool,
    continuous_usage: bool = False,
) -> AsyncGenerator[ChatCompletionChunk, None]:
    """Yield each choice's role, text, calls and finish reason, then the usage if `include_usage` is set; with
    `continuous_usage`, each chunk has the usage so far."""
    chunk: ChatCompletionChunk = {
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
        "choices": [],
    }
    if include_usage:
        chunk["usage"] = None
    choices = [_ChunkedChoice(head, index) for index in range(head.request.n)]
    sums = TokenSums()
    async with aclosing(deltas):
        async for delta in deltas:
            sums.add(delta)
            if continuous_usage:
                chunk["usage"] = head.usage(sums)
            for choice in choices[delta.index].push(delta):
                yield {**chunk, "choices": [choice]}
    if include_usage:
        yield {**chunk, "usage": head.usage(sums)}


def _whole_choice(head: CompletionHead, completion: Completion) -> ChatChoice:
    pieces = _pieces(head.request.tools, completion.text)
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    calls = _whole_calls(pieces)
    message: AssistantMessage = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if completion.reasoning:
        message["reasoning"] = completion.reasoning
        if head.request.reasoning is not None and head.request.reasoning.as_content:
            message["reasoning_content"] = completion.reasoning
    if calls and calls[0]["type"] == "function" and _has_functions(head):
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls
    return {
        "index": completion.index,
        "message": message,
        "logprobs": _logprobs(head, completion.logprobs),
        "finish_reason": _finish_reason(head.request.tools, completion.finish_reason, called=bool(calls)),
    }


class _ChunkedChoice:
    """One choice, divided into chunks. Its first chunk has the role; logprobs are held until the next chunk."""

    def __init__(self, head: CompletionHead, index: int) -> None:
        self._head = head
        self._index = index
        tools = head.request.tools
        self._reader = tools.reader() if tools is not None else None
        self._started = False
        self._called = False
        self._logprobs: list[generated.TokenLogprob] = []

    def push(self, delta: TextDelta) -> Iterator[ChunkChoice]:
        """Yield the chunks that a delta of this choice results in."""
        self._logprobs.extend(delta.logprobs)
        pieces = self._read(delta)
        held = self._reader is not None and not (pieces or delta.reasoning or delta.finish_reason is not None)
        if not self._started and not held:
            self._started = True
            content = None if pieces and isinstance(pieces[0], parsed.ToolCall) else ""
            yield _chunk_choice(self._index, {"role": "assistant", "content": content}, None, None)
        if delta.reasoning:
            yield _chunk_choice(self._index, _reasoning(self._head, delta.reasoning), None, None)
        for piece in pieces:
            yield self._piece(piece)
        if delta.finish_reason is not None:
            reason = _finish_reason(self._head.request.tools, delta.finish_reason, called=self._called)
            yield self._chunk({}, reason)

    def _read(self, delta: TextDelta) -> list[Piece]:
        if self._reader is None:
            return [Content(delta.text)] if delta.text or delta.logprobs else []
        pieces = self._reader.push(delta.text)
        return pieces if delta.finish_reason is None else pieces + self._reader.finish()

    def _piece(self, piece: Piece) -> ChunkChoice:
        if isinstance(piece, Content):
            return self._chunk({"content": piece.text})
        self._called = self._called or isinstance(piece, parsed.ToolCall)
        delta = _call_delta(piece)
        if _has_functions(self._head) and "function" in delta:
            return self._chunk({"function_call": delta["function"]})
        return self._chunk({"tool_calls": [delta]})

    def _chunk(self, delta: MessageDelta, reason: ChatFinishReason | None = None) -> ChunkChoice:
        logprobs = None if reason and not self._logprobs else _logprobs(self._head, self._logprobs)
        self._logprobs = []
        return _chunk_choice(self._index, delta, logprobs, reason)


def _reasoning(head: CompletionHead, text: str) -> MessageDelta:
    use = head.request.reasoning
    return {"reasoning": text, "reasoning_content": text} if use and use.as_content else {"reasoning": text}


def _has_functions(head: CompletionHead) -> bool:
    return head.request.tools is not None and head.request.tools.as_function_call


def _chunk_choice(
    index: int, delta: MessageDelta, logprobs: ChatLogprobs | None, reason: ChatFinishReason | None
) -> ChunkChoice:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _pieces(tools: ToolUse | None, text: str) -> list[Piece]:
    if tools is None:
        return [Content(text)]
    reader = tools.reader()
    return reader.push(text) + reader.finish()


def _finish_reason(tools: ToolUse | None, reason: FinishReason, *, called: bool) -> ChatFinishReason:
    """Return OpenAI's reason: "stop" after a call of the function that the caller named, "tool_calls" after one that
    the model chose."""
    if tools is None or not called or tools.named or reason == "length":
        return reason
    return "function_call" if tools.as_function_call else "tool_calls"


def _logprobs(head: CompletionHead, tokens: Sequence[generated.TokenLogprob]) -> ChatLogprobs | None:
    if not head.request.sampling.HasField("top_logprobs"):
        return None
    return chat_logprobs(head.request.base.tokenizer, tokens)


def _call_delta(piece: parsed.ToolCall | MoreArguments) -> ToolCallDelta:
    match piece:
        case MoreArguments(index, text, custom=True):
            return {"index": index, "custom": {"input": text}}
        case MoreArguments(index, text):
            return {"index": index, "function": {"arguments": text}}
        case parsed.ToolCall(index, id_, name, custom=True):
            return {"index": index, "id": id_, "type": "custom", "custom": {"name": name, "input": ""}}
        case parsed.ToolCall(index, id_, name):
            return {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}


def _whole_calls(pieces: Sequence[Piece]) -> list[ToolCall | CustomToolCall]:
    """Return the message's calls in their order."""
    starts = [piece for piece in pieces if isinstance(piece, parsed.ToolCall)]
    texts = [""] * len(starts)
    for piece in pieces:
        if isinstance(piece, MoreArguments):
            texts[piece.index] += piece.text
    return [_whole_call(start, text) for start, text in zip(starts, texts, strict=True)]


def _whole_call(start: parsed.ToolCall, text: str) -> ToolCall | CustomToolCall:
    if start.custom:
        return {"id": start.id, "type": "custom", "custom": {"name": start.name, "input": text}}
    return {"id": start.id, "type": "function", "function": {"name": start.name, "arguments": text}}
