"""Text completions, whole and in chunks; both have the same shape."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation.output import Completion, TextDelta, TokenLogprob
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.logprobs import CompletionLogprobs, completion_logprobs
from loragate.gateway.objects.response_head import Answer, CompletionBase, Usage
from loragate.gateway.schemas.inference.completions import CompletionRequest


class TextChoice(TypedDict):
    """One of `n` for each prompt. In a stream `finish_reason` is null but for a choice's last event."""

    text: str
    index: Count
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(CompletionBase):
    """The whole answer, or an event of a stream, where only the last may have the usage.

    `[DONE]` follows. A failure after the first event comes as the error envelope, and no `[DONE]` follows it.
    """

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: NotRequired[Usage | None]


Echoes = Sequence[str]  # by prompt: the text to repeat in front of its completions


def echoes_of(body: CompletionRequest, request: GenerationRequest) -> Echoes:
    """What stands in front of each prompt's completions."""
    if not body.echo:
        return [""] * len(body.prompts)
    decode = request.base.tokenizer.decode
    return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in body.prompts]


def text_completion(answer: Answer, completions: Sequence[Completion], echoes: Echoes) -> dict[str, Any]:
    """The whole answer."""
    choices = []
    for completion in completions:
        logprobs = _logprobs(answer, completion.logprobs)
        text = echoes[completion.index // answer.request.n] + completion.text
        choices.append(_choice(completion.index, text, logprobs, completion.finish_reason))
    usage = answer.usage(sum(c.tokens for c in completions), sum(c.cached_tokens for c in completions))
    return {**answer.head("text_completion"), "choices": choices, "usage": usage}


async def text_chunks(
    answer: Answer, deltas: AsyncGenerator[TextDelta, None], echoes: Echoes, *, include_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """Each choice's text, the last chunk with its finish reason; at the end the usage, if wanted."""
    head = answer.head("text_completion") | ({"usage": None} if include_usage else {})
    begun: set[int] = set()
    tokens = cached = 0
    async with aclosing(deltas):
        async for delta in deltas:
            tokens += delta.tokens
            cached += delta.cached_tokens
            text = delta.text
            if delta.index not in begun:
                begun.add(delta.index)
                text = echoes[delta.index // answer.request.n] + text
            if text or delta.logprobs or delta.finish_reason:
                logprobs = _logprobs(answer, delta.logprobs)
                yield {**head, "choices": [_choice(delta.index, text, logprobs, delta.finish_reason)]}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage(tokens, cached)}


def _choice(index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(answer: Answer, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    if not answer.request.sampling.HasField("top_logprobs"):
        return None
    return completion_logprobs(answer.request.base.tokenizer, tokens)
