"""What all chunks and choices of one answer have in common."""

import secrets
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count

UnixTime = Annotated[int, Field(ge=0, description="Unix time in seconds.")]


class PromptDetails(TypedDict):
    """`cached_tokens` of the prompt needed no computing."""

    cached_tokens: Count


class Usage(TypedDict):
    """Tokens, all choices together. Each prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails


class CompletionBase(TypedDict):
    """`system_fingerprint` is that of the base model's weights."""

    id: str
    created: UnixTime
    model: Annotated[str, Field(description="As the request named it.")]
    system_fingerprint: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of one answer. `model` is what the request said."""

    id: str
    model: str
    request: GenerationRequest
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self, object_: str) -> dict[str, Any]:
        """The fields in front of `choices`."""
        return {
            "id": self.id,
            "object": object_,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self._fingerprint,
        }

    def usage(self, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
        """Each prompt counts once, whatever n is."""
        prompt_tokens = self.request.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }

    @property
    def _fingerprint(self) -> str:
        return "fp_" + self.request.base.manifest.base_digest.removeprefix("sha256:")[:12]


def new_answer(prefix: str, model: str, request: GenerationRequest) -> Answer:
    """An answer with a fresh id such as "chatcmpl-…"."""
    return Answer(f"{prefix}-{secrets.token_hex(14)}", model, request)
