"""Deltas of completions, and the completions assembled from them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from loragate.gateway.generation.prompt_logprobs import PromptLogprobs

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One delivered token. Logprobs are natural logarithms; `top` holds (token id, logprob), most probable first.

    `offset` is the position of its text in the completion's, in characters.
    """

    token_id: int
    offset: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of completion `index`. `tokens` were generated for it and are billed; its text may still be empty.

    `text` is part of the answer, `reasoning` of what the model wrote before it; `reasoning_tokens` of the tokens were.

    `cached_tokens` of the prompt were found in the prefix cache; they are reported once per prompt, with its first
    completion. So are the prompt's logprobs, in a delta before any other of its completions. `stop` is the stop string
    that ended it.
    """

    index: int
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    reasoning: str = ""
    reasoning_tokens: int = 0
    stop: str | None = None
    prompt: PromptLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished completion: its answer, the reasoning before it, and the stop string that ended it; the first one of a
    prompt has the prompt's logprobs."""

    index: int
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    cached_tokens: int = 0
    reasoning: str = ""
    reasoning_tokens: int = 0
    stop: str | None = None
    prompt: PromptLogprobs | None = None


async def put_together(deltas: AsyncGenerator[TextDelta, None], completions: int) -> list[Completion]:
    """Assemble all completions, in the order of their indices."""
    drafts = [_Draft(index) for index in range(completions)]
    async with aclosing(deltas):
        async for delta in deltas:
            drafts[delta.index].add(delta)
    return [draft.completion() for draft in drafts]


class _Draft:
    """A completion that is being assembled."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tokens = self._cached_tokens = self._reasoning_tokens = 0
        self._logprobs: list[TokenLogprob] = []
        self._finish_reason: FinishReason | None = None
        self._stop: str | None = None
        self._prompt: PromptLogprobs | None = None

    def add(self, delta: TextDelta) -> None:
        self._text.append(delta.text)
        self._reasoning.append(delta.reasoning)
        self._tokens += delta.tokens
        self._cached_tokens += delta.cached_tokens
        self._reasoning_tokens += delta.reasoning_tokens
        self._logprobs.extend(delta.logprobs)
        self._finish_reason = delta.finish_reason
        self._stop = delta.stop
        self._prompt = self._prompt or delta.prompt

    def completion(self) -> Completion:
        assert self._finish_reason is not None, "the stream ended before this completion did"
        return Completion(
            self._index,
            "".join(self._text),
            self._tokens,
            tuple(self._logprobs),
            self._finish_reason,
            self._cached_tokens,
            "".join(self._reasoning),
            self._reasoning_tokens,
            self._stop,
            self._prompt,
        )
