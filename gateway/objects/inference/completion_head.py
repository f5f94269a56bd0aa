"""Fields that all chunks and choices of a chat or text completion share."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.generation.output import Completion, TextDelta
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count

T = TypeVar("T")

UnixTime = Annotated[int, Field(ge=0, description="Unix time in seconds.")]


class PromptDetails(TypedDict):
    """`cached_tokens`: prompt tokens that were found in the prefix cache and not computed again."""

    cached_tokens: Count


class CompletionDetails(TypedDict):
    """`reasoning_tokens`: completion tokens that are reasoning before the answer."""

    reasoning_tokens: Count


class Usage(TypedDict):
    """Tokens of all choices together. Each prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CompletionBase(TypedDict):
    """`system_fingerprint` identifies the base model's weights."""

    id: str
    created: UnixTime
    model: Annotated[str, Field(description="The model's name, as the request gave it.")]
    system_fingerprint: str


@dataclass(slots=True)
class TokenSums:
    """The tokens of all completions of a request."""

    tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def add(self, part: TextDelta | Completion) -> None:
        """Add the tokens of a piece or of a whole completion."""
        self.tokens += part.tokens
        self.cached_tokens += part.cached_tokens
        self.reasoning_tokens += part.reasoning_tokens


def token_sums(completions: Iterable[Completion]) -> TokenSums:
    """Return the sums of whole completions."""
    sums = TokenSums()
    for completion in completions:
        sums.add(completion)
    return sums


@dataclass(frozen=True, slots=True)
class CompletionHead:
    """The head of one completion. `model` is the name that the request gave."""

    id: str
    model: str
    request: GenerationRequest
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def fingerprint(self) -> str:
        """The `system_fingerprint`, taken from the digest of the base model's weights."""
        return "fp_" + self.request.base.manifest.base_digest.removeprefix("sha256:")[:12]

    def usage(self, sums: TokenSums) -> Usage:
        """Return the usage. Each prompt counts once, however many completions it has."""
        prompt_tokens = self.request.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": sums.tokens,
            "total_tokens": prompt_tokens + sums.tokens,
            "prompt_tokens_details": {"cached_tokens": sums.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": sums.reasoning_tokens},
        }


def new_completion_head(prefix: str, model: str, request: GenerationRequest) -> CompletionHead:
    """Return a head with a new id such as "chatcmpl-…"."""
    return CompletionHead(f"{prefix}-{secrets.token_hex(14)}", model, request)


async def written(request: GenerationRequest, write: Callable[[], T]) -> T:
    """Return the whole response that `write` returns: on a thread if it has the logprobs of prompts, which are many."""
    return write() if request.scored_alternatives is None else await asyncio.to_thread(write)
