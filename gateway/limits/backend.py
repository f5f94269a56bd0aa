"""The interface of a limit backend, which counts what a tenant, its keys and its adapters have used.

`MemoryBackend` counts within this process, `RedisBackend` for all processes together. Both behave the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from loragate.gateway.limits.operations import Operation
from loragate.gateway.limits.subject import Kind

Verdict = Literal["ok", "no", "lost"]
MICROSECONDS = 1_000_000
WINDOW = 60 * MICROSECONDS


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """One limit without room for a reservation. `wait` is in microseconds; None unless a bucket has to empty."""

    subject: int  # index into the operation's subjects
    kind: Kind
    wait: float | None


@dataclass(frozen=True, slots=True)
class SubjectState:
    """The state of one subject. A bucket is represented by when it will be empty (GCRA), in the backend's time."""

    requests: float
    tokens: float
    day: int  # days since 1970; -1 if daily tokens are not counted
    day_tokens: int
    month: int  # months since year 0; -1 if monthly tokens are not counted
    month_tokens: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The outcome of one operation, with the `states` of its subjects.

    The verdict "lost" means that the backend lacks the state it needs, which `Restore` provides.
    """

    verdict: Verdict
    now: float  # by the backend's clock
    exceeded: tuple[ExceededLimit, ...]
    states: tuple[SubjectState, ...]


@dataclass(frozen=True, slots=True)
class BackendResponse:
    """The results of one call, in the order of its operations."""

    incarnation: str  # changes when the backend has lost all of its state
    results: tuple[OperationResult, ...]


class LimitBackend(Protocol):
    """A store of limits. Its methods raise BackendUnavailable if it cannot be reached now."""

    async def execute(self, tenant_id: str, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        """Execute the operations in order. `incarnation` is the one that the caller knows, or "" for none."""


class BackendUnavailable(Exception):
    """The backend does not respond, or not in time."""
