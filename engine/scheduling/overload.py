"""Load shedding: bounds on the queue, and estimates of when a retry makes sense."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.engine.adapters.token_cost import GENERATED_UNITS, PROMPT_UNITS
from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.scheduling.virtual_counters import TenantCounter, VirtualTokenCounters
from loragate.engine.sequence.output import ErrorCode, Failure
from loragate.engine.sequence.request import Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TenantQueue:
    """A tenant with open requests. Its waiting requests will take `seconds` of the whole engine's time."""

    tenant_id: str
    weight: float
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of the queue; without tenants, no request waits.

    A waiting request takes `request_seconds` of the whole engine's time on average. `tenants` are sorted by how long
    they wait at their share of the engine, longest first.
    """

    request_seconds: float = 0.0
    active_weight: float = 0.0
    tenants: tuple[TenantQueue, ...] = ()

    @property
    def seconds(self) -> float:
        """The engine's time that all of these requests will take."""
        return sum(each.seconds for each in self.tenants)


_RATE_SECONDS = 10.0  # busy time after which the weight of a measurement has fallen to 1/e
_LENGTH_MEMORY = 0.95  # factor of a finished sequence's length in the mean after each further one
_RETRY_SECONDS = (0.1, 60.0)
_UNKNOWN_SECONDS = 1.0
_MAX_TENANTS = 256  # number of tenants whose queues are reported


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Maximum number of waiting sequences: in total and per tenant."""

    total: int = 4096
    per_tenant: int = 1024


class Overload:
    """Bounds the queues, and estimates waiting times from the rate of service while requests waited."""

    def __init__(self, bounds: QueueBounds, counters: VirtualTokenCounters) -> None:
        self._bounds = bounds
        self._counters = counters
        self._units = 0.0  # these two decay with busy time
        self._seconds = 0.0
        self._mean_length: float | None = None

    def record_service(self, units: float, seconds: float) -> None:
        """Record units of service that took `seconds` while other requests waited."""
        decay = math.exp(-seconds / _RATE_SECONDS)
        self._units = decay * self._units + units
        self._seconds = decay * self._seconds + seconds

    def record_length(self, generated: int) -> None:
        """Record the number of tokens that a finished sequence generated."""
        mean = generated if self._mean_length is None else self._mean_length
        self._mean_length = _LENGTH_MEMORY * mean + (1 - _LENGTH_MEMORY) * generated

    def expected_units(self, sequence: Sequence) -> float:
        """Return the service that a waiting sequence will take: its prompt, and as many tokens as others generated."""
        limit = sequence.request.sampling.max_tokens
        length = limit if self._mean_length is None else min(limit, self._mean_length)
        return PROMPT_UNITS * sequence.prompt_length + GENERATED_UNITS * length

    def rejection(self, request: Request, waiting: int, free_seats: int, max_wait: float | None) -> Failure | None:
        """Return why a new request is rejected; `max_wait` is the time in seconds until its prompt must be computed.

        A tenant may use as much of the queue as is still free beside it (Choudhury and Hahne, "Dynamic queue length
        thresholds for shared-memory packet switches", 1998), so a tenant that floods the engine never takes the last
        place.
        """
        tenant = self._counters.find(request.share.tenant_id)
        own = 0 if tenant is None else tenant.waiting
        room = min(self._bounds.per_tenant, self._bounds.total - waiting) + free_seats
        if own + request.n > room and waiting:
            which = f"{own} of the tenant's" if own else "too many"
            message = f"{which} requests are already waiting"
            return Failure(ErrorCode.OVERLOADED, message, self._retry(self._wait(request, tenant) / 2), own > 0)
        wait = 0.0 if free_seats >= request.n and not own else self._wait(request, tenant)
        if max_wait is not None and wait > max_wait:
            message = "its first token would not be available before its deadline"
            return Failure(ErrorCode.OVERLOADED, message, self._retry(wait - max_wait), own > 0)
        return None

    def load(self) -> QueueLoad:
        """Return the current load of the queue. Thread-safe."""
        rate = self._units / self._seconds if self._seconds else 0.0
        return queue_load(self._counters.all(), self._counters.active_weight, rate, _MAX_TENANTS)

    def missed_deadline(self, request: Request) -> Failure:
        """Return the failure of a request that can no longer meet its deadline."""
        tenant = self._counters.find(request.share.tenant_id)
        message = "its deadline for the first token can no longer be met"
        return Failure(ErrorCode.OVERLOADED, message, self._retry(self._wait(request, tenant)))

    def _wait(self, request: Request, tenant: TenantCounter | None) -> float:
        """Return the seconds until the tenant's backlog is served at its share of the engine; 0 before any
        measurement."""
        if tenant is None or not self._seconds or not self._units:
            return 0.0
        share = tenant.weight / max(self._counters.active_weight, tenant.weight)
        return tenant.backlog / (share * self._units / self._seconds)

    def _retry(self, seconds: float) -> float:
        shortest, longest = _RETRY_SECONDS
        return min(longest, max(shortest, seconds or _UNKNOWN_SECONDS))


def queue_load(
    tenants: Iterable[TenantCounter], active_weight: float, units_per_second: float, max_tenants: int
) -> QueueLoad:
    """Return the load at a rate of service measured while requests waited, with at most `max_tenants` tenants."""
    active = [tenant for tenant in tenants if tenant.sequences]
    waiting = sum(tenant.waiting for tenant in active)
    if not waiting or not units_per_second:
        return QueueLoad()
    active.sort(key=lambda tenant: tenant.backlog / tenant.weight, reverse=True)
    return QueueLoad(
        sum(tenant.backlog for tenant in active) / waiting / units_per_second,
        active_weight,
        tuple(TenantQueue(a.tenant_id, a.weight, a.backlog / units_per_second) for a in active[:max_tenants]),
    )


class Deadlines:
    """Sequences by their latest start, as a time.monotonic()."""

    def __init__(self) -> None:
        self._latest: dict[Sequence, float] = {}
        self._heap: LazyHeap[Sequence] = LazyHeap(self._latest.__getitem__)

    def add(self, sequence: Sequence, latest: float) -> None:
        self._latest[sequence] = latest
        self._heap.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        self._heap.discard(sequence)
        self._latest.pop(sequence, None)

    @property
    def next(self) -> float | None:
        first = self._heap.first()
        return None if first is None else self._latest[first]

    def pop_expired(self, now: float) -> list[Sequence]:
        """Remove and return the sequences whose time has passed."""
        late: list[Sequence] = []
        while (first := self._heap.first()) is not None and self._latest[first] < now:
            late.append(first)
            self.discard(first)
        return late
