"""Text completions, whole and in chunks; both have the same shape."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.generation.output import Completion, FinishReason, TextDelta
from loragate.gateway.generation.prompt_logprobs import PromptLogprobs
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import (
    CompletionBase,
    CompletionHead,
    TokenSums,
    Usage,
    token_sums,
)
from loragate.gateway.objects.inference.logprobs import (
    CompletionLogprobs,
    PromptTokens,
    completion_logprobs,
    echo_logprobs,
    joined,
    prompt_logprobs,
)
from loragate.gateway.schemas.inference.completions import CompletionRequest

Echoes = Sequence[str]  # by prompt: the text to repeat in front of its completions


class TextChoice(TypedDict):
    """One of the `n` completions of each prompt. In a stream `finish_reason` is null except in a choice's last
    event. `prompt_logprobs` are there if the request has this field."""

    text: str
    index: Count
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    prompt_logprobs: NotRequired[PromptTokens]


class TextCompletion(CompletionBase):
    """The whole completion, or one event of a stream, of which only the last may have the usage.

    A stream ends with `[DONE]`. An error after the first event is sent as the error envelope, without a `[DONE]`.
    """

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: NotRequired[Usage | None]


def echoes_of(body: CompletionRequest, request: GenerationRequest) -> Echoes:
    """Return the text in front of each prompt's completions."""
    if not body.echo:
        return [""] * len(body.prompts)
    decode = request.base.tokenizer.decode
    return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in body.prompts]


def text_completion(head: CompletionHead, completions: Sequence[Completion], echoes: Echoes) -> TextCompletion:
    """Return the whole completion."""
    choices: list[TextChoice] = []
    for start in range(0, len(completions), head.request.n):
        scores = completions[start].prompt
        echo = _Echo(head, echoes[start // head.request.n], scores)
        of_prompt = _prompt_logprobs(head, scores)
        for completion in completions[start : start + head.request.n]:
            logprobs = echo.before(_logprobs(head, completion.logprobs))
            choice = _choice(completion.index, echo.text + completion.text, logprobs, completion.finish_reason)
            choices.append(choice if of_prompt is None else {**choice, "prompt_logprobs": of_prompt})
    usage = head.usage(token_sums(completions))
    return {**_without_choices(head), "choices": choices, "usage": usage}


async def text_chunks(
    head: CompletionHead,
    deltas: AsyncGenerator[TextDelta, None],
    echoes: Echoes,
    *,
    include_usage: bool,
    continuous_usage: bool = False,
) -> AsyncGenerator[TextCompletion, None]:
    """Yield each choice's text, with its finish reason in its last chunk, then the usage if `include_usage` is set;
    with `continuous_usage`, each chunk has the usage so far."""
    chunk = _without_choices(head)
    if include_usage:
        chunk["usage"] = None
    started: set[int] = set()
    prompts = [_Echo(head, text, None) for text in echoes]
    sums = TokenSums()
    async with aclosing(deltas):
        async for delta in deltas:
            sums.add(delta)
            if continuous_usage:
                chunk["usage"] = head.usage(sums)
            text, logprobs = delta.text, _logprobs(head, delta.logprobs)
            position = delta.index // head.request.n
            if delta.prompt is not None:
                prompts[position] = await asyncio.to_thread(_Echo, head, echoes[position], delta.prompt)
            echo = prompts[position]
            if delta.index not in started:
                started.add(delta.index)
                text, logprobs = echo.text + text, echo.before(logprobs)
            else:
                logprobs = echo.shifted(logprobs)
            if text or delta.logprobs or delta.finish_reason:
                yield {**chunk, "choices": [_choice(delta.index, text, logprobs, delta.finish_reason)]}
    if include_usage:
        yield {**chunk, "usage": head.usage(sums)}


class _Echo:
    """A prompt's text in front of its completions, with its logprobs; empty if it is not echoed."""

    def __init__(self, head: CompletionHead, text: str, scores: PromptLogprobs | None) -> None:
        top = head.request.echo_logprobs
        self.text = text
        self._logprobs = None
        if scores is not None and top is not None:
            self._logprobs = echo_logprobs(head.request.base.tokenizer, scores, top, text)

    def before(self, logprobs: CompletionLogprobs | None) -> CompletionLogprobs | None:
        """Return the prompt's logprobs and those of its completion."""
        if self._logprobs is None or logprobs is None:
            return logprobs
        return joined(self._logprobs, logprobs, len(self.text))

    def shifted(self, logprobs: CompletionLogprobs | None) -> CompletionLogprobs | None:
        """Return logprobs of a later piece of a completion, whose offsets count the prompt too."""
        if self._logprobs is None or logprobs is None:
            return logprobs
        return {**logprobs, "text_offset": [len(self.text) + offset for offset in logprobs["text_offset"]]}


def _prompt_logprobs(head: CompletionHead, scores: PromptLogprobs | None) -> PromptTokens | None:
    top = head.request.prompt_logprobs
    if scores is None or top is None:
        return None
    return prompt_logprobs(head.request.base.tokenizer, scores, top)


def _without_choices(head: CompletionHead) -> TextCompletion:
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
        "choices": [],
    }


def _choice(
    index: int, text: str, logprobs: CompletionLogprobs | None, finish_reason: FinishReason | None
) -> TextChoice:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(head: CompletionHead, tokens: Sequence[generated.TokenLogprob]) -> CompletionLogprobs | None:
    if not head.request.sampling.HasField("top_logprobs"):
        return None
    return completion_logprobs(head.request.base.tokenizer, tokens)
