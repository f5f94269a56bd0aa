"""The outputs of a sequence."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.engine.sequence.request import Request


class FinishReason(enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    ABORTED = "aborted"


class ErrorCode(enum.Enum):
    INVALID_REQUEST = "invalid_request"
    ADAPTER_UNAVAILABLE = "adapter_unavailable"
    NON_FINITE = "non_finite"
    INTERNAL = "internal"
    OVERLOADED = "overloaded"


class Failure(NamedTuple):
    """Why a sequence ended without a result.

    `retry_after`, in seconds, goes with OVERLOADED, and so does `own_queue`: it is true if the tenant's own requests
    wait, rather than the engine's in general.
    """

    code: ErrorCode
    message: str
    retry_after: float | None = None
    own_queue: bool = False


class Computed(NamedTuple):
    """The tokens that were computed for a sequence, each once; `prompt_tokens` are those that were not found in the
    cache."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithms under the model's own distribution; `top` holds (token, logprob), most probable first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one step for one sequence: at most one token, and possibly its end or its embedding, or the
    logprobs of the next tokens of its prompt."""

    request: Request
    index: int
    token: int | None = None
    logprob: TokenLogprob | None = None
    finish: FinishReason | None = None
    error: Failure | None = None
    cached_tokens: int = 0  # with its first token: prompt tokens that were found in the cache
    embedding: tuple[float, ...] | None = None  # [hidden size], not normalized; or the logits of the adapter's head
    prompt_logprobs: PromptLogprobs | None = None
    computed: Computed | None = None  # with the end of a sequence; None for a request that had none
