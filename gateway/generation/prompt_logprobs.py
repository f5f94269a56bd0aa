"""Logprobs of the tokens of a prompt: their number is bounded, and they arrive in parts."""

from array import array
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from loragate.gateway.errors import InvalidRequest
from loragate.v1 import engine_pb2 as pb

MAX_PROMPT_LOGPROBS = 100_000
"""In one response: some 8 MB of JSON, written in about half a second."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of a prompt. The first one has neither a logprob nor a rank; `top` holds (token id, logprob)."""

    token_id: int
    logprob: float | None = None
    rank: int = 0  # among all tokens, from 1
    top: tuple[tuple[int, float], ...] = ()


class PromptLogprobs:
    """The logprobs of one prompt's tokens, as far as they have arrived."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = prompt
        self._top = 0
        self._logprobs, self._top_logprobs = array("f"), array("f")
        self._ranks, self._top_ids = array("I"), array("I")

    def add(self, part: pb.PromptLogprobs) -> None:
        """Add those of the next tokens."""
        self._top = part.top
        self._logprobs.extend(part.logprobs)
        self._ranks.extend(part.ranks)
        self._top_ids.extend(part.top_token_ids)
        self._top_logprobs.extend(part.top_logprobs)

    @property
    def complete(self) -> bool:
        """Whether all tokens but the first have theirs."""
        return len(self._logprobs) >= len(self._prompt) - 1

    def tokens(self, top: int) -> Iterator[ScoredToken]:
        """Yield each token of the prompt with at most `top` alternatives."""
        yield ScoredToken(self._prompt[0])
        for place, token_id in enumerate(self._prompt[1:]):
            start = place * self._top
            stop = start + min(top, self._top)
            alternatives = zip(self._top_ids[start:stop], self._top_logprobs[start:stop], strict=True)
            yield ScoredToken(token_id, self._logprobs[place], self._ranks[place], tuple(alternatives))


def check_prompt_logprobs(prompts: Sequence[Sequence[int]], each: int, param: str) -> None:
    """Raise InvalidRequest if a response with `each` logprobs for each token of the prompts would be too large."""
    tokens = sum(map(len, prompts))
    if tokens * each > MAX_PROMPT_LOGPROBS:
        message = (
            f"Invalid '{param}': {tokens} tokens in the prompts with {each} logprobs each are {tokens * each}, but a "
            f"response may have {MAX_PROMPT_LOGPROBS}. Ask for fewer alternatives or completions, or send the prompts "
            "in several requests."
        )
        raise InvalidRequest(message, param=param, code="invalid_value")


async def after_prompt(
    deltas: AsyncGenerator[pb.Delta, None], scores: PromptLogprobs
) -> AsyncGenerator[pb.Delta, None]:
    """Yield the deltas of a prompt's completions once all of its logprobs have arrived: the first completion brings
    them, and others may be ahead of it."""
    held: list[pb.Delta] = []
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.HasField("prompt_logprobs"):
                scores.add(delta.prompt_logprobs)
            held.append(delta)
            if scores.complete:
                for each in held:
                    yield each
                held.clear()
