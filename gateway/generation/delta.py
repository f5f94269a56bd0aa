"""What comes out of generation, piece by piece."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One sent token. Natural logs; `top` holds (token id, logprob), most probable first.

    `offset` is where its text begins in the completion's, in characters.
    """

    token_id: int
    offset: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of completion `index`. `tokens` were generated for it and are billed; its text may still be empty.

    `cached_tokens` of the prompt needed no computing; said once a prompt, by its first completion.
    """

    index: int
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished completion."""

    index: int
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    cached_tokens: int = 0
