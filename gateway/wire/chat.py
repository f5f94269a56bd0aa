"""Chat completions, whole and in chunks."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from loragate.gateway.generation.delta import Completion, TextDelta, TokenLogprob
from loragate.gateway.wire.answer import Answer
from loragate.gateway.wire.logprobs import chat_logprobs


def chat_completion(answer: Answer, completions: Sequence[Completion]) -> dict[str, Any]:
    """The whole answer."""
    choices = [
        {
            "index": completion.index,
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": _logprobs(answer, completion.logprobs),
            "finish_reason": completion.finish_reason,
        }
        for completion in completions
    ]
    usage = answer.usage(sum(completion.tokens for completion in completions))
    return {**answer.head("chat.completion"), "choices": choices, "usage": usage}


async def chat_chunks(
    answer: Answer, deltas: AsyncGenerator[TextDelta, None], *, include_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """For each choice its role, its text and its finish reason; at the end the usage, if wanted."""
    head = answer.head("chat.completion.chunk") | ({"usage": None} if include_usage else {})
    begun: set[int] = set()
    tokens = 0
    async with aclosing(deltas):
        async for delta in deltas:
            tokens += delta.tokens
            if delta.index not in begun:
                begun.add(delta.index)
                yield {**head, "choices": [_choice(delta.index, {"role": "assistant", "content": ""})]}
            for choice in _choices(answer, delta):
                yield {**head, "choices": [choice]}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage(tokens)}


def _choices(answer: Answer, delta: TextDelta) -> Iterator[dict[str, Any]]:
    if delta.text or delta.logprobs:
        yield _choice(delta.index, {"content": delta.text}, _logprobs(answer, delta.logprobs))
    if delta.finish_reason is not None:
        yield _choice(delta.index, {}, finish_reason=delta.finish_reason)


def _choice(
    index: int,
    delta: dict[str, str],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(answer: Answer, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    if not answer.request.sampling.HasField("top_logprobs"):
        return None
    return chat_logprobs(answer.request.base.tokenizer, tokens)
