"""What is refused before any work is done on it, and when trying again makes sense."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.engine.adapters.token_cost import GENERATED_UNITS, PROMPT_UNITS
from loragate.engine.scheduling.virtual_counters import Account, Ledger
from loragate.engine.sequence.output import ErrorCode, Failure
from loragate.engine.sequence.request import Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TenantQueue:
    """One tenant with open requests. `seconds` of the whole engine's time its waiting ones will take."""

    tenant_id: str
    weight: float
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """`request_seconds` of the whole engine's time a waiting request takes on average. Tenants who wait the longest,
    each at its share of the engine, come first. Nobody waits: there are no tenants."""

    request_seconds: float = 0.0
    active_weight: float = 0.0
    tenants: tuple[TenantQueue, ...] = ()


_RATE_SECONDS = 10.0  # busy time after which a measurement is worth 1/e
_LENGTH_MEMORY = 0.95  # what a finished sequence's length is worth after one more
_RETRY_SECONDS = (0.1, 60.0)
_UNKNOWN_SECONDS = 1.0
_MOST_TENANTS = 256  # whose queues are told


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Sequences that may wait: in all, and of one tenant."""

    total: int = 4096
    per_tenant: int = 1024


class Overload:
    """Bounds the queues, and estimates waits from the rate at which the engine served while others waited."""

    def __init__(self, bounds: QueueBounds, ledger: Ledger) -> None:
        self._bounds = bounds
        self._ledger = ledger
        self._units = 0.0  # both decay with busy time
        self._seconds = 0.0
        self._mean_length: float | None = None

    def served(self, units: float, seconds: float) -> None:
        """So many units of service took so long, while others waited."""
        decay = math.exp(-seconds / _RATE_SECONDS)
        self._units = decay * self._units + units
        self._seconds = decay * self._seconds + seconds

    def finished(self, generated: int) -> None:
        """A sequence ended with so many tokens."""
        mean = generated if self._mean_length is None else self._mean_length
        self._mean_length = _LENGTH_MEMORY * mean + (1 - _LENGTH_MEMORY) * generated

    def expected_units(self, sequence: Sequence) -> float:
        """Service that a waiting sequence will take: its prompt, and as many tokens as others got."""
        most = sequence.request.sampling.max_tokens
        length = most if self._mean_length is None else min(most, self._mean_length)
        return PROMPT_UNITS * sequence.prompt_length + GENERATED_UNITS * length

    def refusal(self, request: Request, waiting: int, free_seats: int, patience: float | None) -> Failure | None:
        """Why a new request is not taken in; `patience` is the seconds it can wait before its prompt is computed.

        A tenant may use as much of the queue as is still free beside it (Choudhury and Hahne, "Dynamic queue length
        thresholds for shared-memory packet switches", 1998): whoever floods never takes the last place.
        """
        account = self._ledger.find(request.share.tenant_id)
        own = 0 if account is None else account.waiting
        room = min(self._bounds.per_tenant, self._bounds.total - waiting) + free_seats
        if own + request.n > room and waiting:
            message = f"{own} of the tenant's requests wait already" if own else "too many requests wait already"
            return Failure(ErrorCode.OVERLOADED, message, self._retry(self._wait(request, account) / 2), own > 0)
        wait = 0.0 if free_seats >= request.n and not own else self._wait(request, account)
        if patience is not None and wait > patience:
            message = f"its first token would come about {wait - patience:.1f} s after its deadline"
            return Failure(ErrorCode.OVERLOADED, message, self._retry(wait - patience), own > 0)
        return None

    def load(self) -> QueueLoad:
        """What waits now; any thread may ask."""
        rate = self._units / self._seconds if self._seconds else 0.0
        return queue_load(self._ledger.all(), self._ledger.active_weight, rate, _MOST_TENANTS)

    def late(self, request: Request) -> Failure:
        """The refusal of a request that waited until its deadline could not be met any more."""
        account = self._ledger.find(request.share.tenant_id)
        message = "its deadline for the first token cannot be met any more"
        return Failure(ErrorCode.OVERLOADED, message, self._retry(self._wait(request, account)))

    def _wait(self, request: Request, account: Account | None) -> float:
        """Until the tenant's backlog is served, at its share of the engine; 0 while nothing was measured."""
        if account is None or not self._seconds or not self._units:
            return 0.0
        share = account.weight / max(self._ledger.active_weight, account.weight)
        return account.backlog / (share * self._units / self._seconds)

    def _retry(self, seconds: float) -> float:
        least, most = _RETRY_SECONDS
        return min(most, max(least, seconds or _UNKNOWN_SECONDS))


def queue_load(accounts: Iterable[Account], active_weight: float, units_per_second: float, most: int) -> QueueLoad:
    """At the rate at which the engine served while others waited. At most so many tenants are named."""
    active = [account for account in accounts if account.sequences]
    waiting = sum(account.waiting for account in active)
    if not waiting or not units_per_second:
        return QueueLoad()
    active.sort(key=lambda account: account.backlog / account.weight, reverse=True)
    return QueueLoad(
        sum(account.backlog for account in active) / waiting / units_per_second,
        active_weight,
        tuple(TenantQueue(a.tenant_id, a.weight, a.backlog / units_per_second) for a in active[:most]),
    )
