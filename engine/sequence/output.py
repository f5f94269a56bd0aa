"""Output."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from loragate.engine.sequence.request import Request


class FinishReason(enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"


class ErrorCode(enum.Enum):
    INVALID_REQUEST = "invalid_request"
    ADAPTER_UNAVAILABLE = "adapter_unavailable"
    NON_FINITE = "non_finite"
    INTERNAL = "internal"
    OVERLOADED = "overloaded"


class Failure(NamedTuple):
    """Why a sequence ended without an answer. `retry_after`, in seconds, goes with OVERLOADED, and so does
    `own_queue`: it is the tenant's own requests that wait, not the engine's in general."""

    code: ErrorCode
    message: str
    retry_after: float | None = None
    own_queue: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logs under the model's own distribution; `top` holds (token, logprob), most probable first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Output:
    """What one step produced for one sequence: at most one token, and perhaps its end, or its embedding."""

    request: Request
    index: int
    token: int | None = None
    logprob: TokenLogprob | None = None
    finish: FinishReason | None = None
    error: Failure | None = None
    cached_tokens: int = 0  # with its first token: prompt tokens that were found cached
    embedding: tuple[float, ...] | None = None  # [hidden size], not normalised
