"""One tenant's pipeline to the limit backend: one call at a time, which carries all operations that came up meanwhile.

Concurrent requests of a tenant therefore share one call, and the call rate does not grow with load.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from loragate.gateway.limits.backend import (
    MICROSECONDS,
    BackendResponse,
    BackendUnavailable,
    LimitBackend,
    OperationResult,
)
from loragate.gateway.limits.observed_state import HeldLease, ObservedState
from loragate.gateway.limits.operations import (
    Extend,
    ImportLeases,
    Renew,
    Reserve,
    Restore,
    Settle,
    SubjectOperation,
)
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.usage_totals import UsageTotals
from loragate.gateway.resilience.timeouts import cancel_and_wait, wait_for_event

LEASE_LIFETIME = 30 * MICROSECONDS  # without renewal
_MAX_OPERATIONS = 128  # of each kind in one call
_MAX_LEASES = 256  # in one operation
_MAX_UNSETTLED = 100_000
_MAX_ATTEMPTS = 3
_RETRY_SECONDS = 0.25
_BATCHING_SECONDS = 0.005  # that a settlement waits for the next request, to share its call

T = TypeVar("T")


class TenantPipeline:
    """`observed` is what the backend reported to this process, and what this process holds."""

    def __init__(self, tenant_id: str, backend: LimitBackend, totals: UsageTotals) -> None:
        self.observed = ObservedState()
        self._tenant_id = tenant_id
        self._backend = backend
        self._totals = totals
        self._reservations: deque[_Reservation] = deque()
        self._updates: deque[_Update] = deque()
        self._settled = asyncio.Event()
        self._pending = asyncio.Event()
        self._urgent = asyncio.Event()  # an operation cannot wait for others
        self._sender: asyncio.Task[None] | None = None

    @property
    def unsettled(self) -> int:
        """Extensions and settlements that the backend has not acknowledged yet."""
        return len(self._updates)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost with this pipeline."""
        observed = self.observed
        used = observed.held or observed.subjects or observed.unreported or self._updates or self._reservations
        return not used and (self._sender is None or self._sender.done())

    async def reserve(self, lease: HeldLease) -> OperationResult:
        """Reserve `lease`. Raise BackendUnavailable, holding nothing, as soon as any call of the pipeline fails."""
        reservation = _Reservation(lease, asyncio.get_running_loop().create_future())
        self._reservations.append(reservation)
        self._wake(urgent=True)
        try:
            return await reservation.result
        except (BackendUnavailable, asyncio.CancelledError):
            self._abandon(reservation)
            raise

    def extend(self, lease: HeldLease, tokens: int) -> None:
        """Send an extension soon, and again until the backend acknowledges it."""
        self._enqueue(_Update(lease, Extend(lease.id, tokens, lease.subjects, LEASE_LIFETIME)))

    def settle(self, lease: HeldLease, tokens: int) -> None:
        """Send a settlement soon, and again until the backend acknowledges it."""
        self._enqueue(_Update(lease, Settle(lease.id, tokens, lease.subjects)))

    async def renew(self) -> None:
        """Report and renew all leases that are held, and forget subjects that are idle. Raise BackendUnavailable."""
        self.observed.forget_idle()
        await self._report_leases()
        subjects = [subject for subject, _, _ in self.observed.subjects.values()]
        for ids in _chunks(list(self.observed.held)):
            await self._execute([Renew(ids, subjects, LEASE_LIFETIME)])

    async def wait_settled(self) -> None:
        """Wait until the backend has acknowledged everything."""
        while self._updates:
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Stop sending."""
        if self._sender is not None:
            await cancel_and_wait(self._sender)

    def _enqueue(self, update: "_Update") -> None:
        if len(self._updates) == _MAX_UNSETTLED:
            self._acknowledge(self._updates.popleft())  # too old: its lease expires
        self._updates.append(update)
        self._wake(urgent=self.observed.is_tight(update.lease))

    def _acknowledge(self, update: "_Update") -> None:
        if isinstance(update.operation, Settle):
            self.observed.held.pop(update.lease.id, None)

    def _abandon(self, reservation: "_Reservation") -> None:
        """Return what the backend may have granted, because the request will not use it."""
        if reservation.sent:
            self.settle(reservation.lease, 0)
        elif reservation in self._reservations:
            self._reservations.remove(reservation)

    def _wake(self, *, urgent: bool) -> None:
        self._pending.set()
        if urgent:
            self._urgent.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._run_send_loop(), name="limits-pipeline")

    async def _run_send_loop(self) -> None:
        while self._reservations or self._updates:
            await wait_for_event(self._urgent, _BATCHING_SECONDS)
            self._urgent.clear()
            self._pending.clear()
            if not await self._send_batch() and not self._reservations:
                await wait_for_event(self._pending, _RETRY_SECONDS)
        self._settled.set()

    async def _send_batch(self) -> bool:
        """Return whether the backend responded. Updates precede reservations because they make room."""
        updates = list(islice(self._updates, _MAX_OPERATIONS))
        reservations = [self._reservations.popleft() for _ in range(min(_MAX_OPERATIONS, len(self._reservations)))]
        for reservation in reservations:
            reservation.sent = True
        sent = [update.operation for update in updates]
        asked = [reservation.operation for reservation in reservations]
        try:
            await self._report_leases()
            results = await self._execute([*sent, *asked])
        except BaseException as error:
            for reservation in chain(reservations, self._reservations):
                reservation.fail(error)
            self._reservations.clear()
            if isinstance(error, BackendUnavailable):
                return False
            raise
        for update in updates:
            if self._updates and self._updates[0] is update:
                self._acknowledge(self._updates.popleft())
        for reservation, result in zip(reservations, results[len(results) - len(reservations) :], strict=True):
            reservation.succeed(result)
        return True

    async def _execute(self, operations: Sequence[SubjectOperation]) -> list[OperationResult]:
        """Execute the operations, restoring a backend that lost its state. Raise BackendUnavailable."""
        results: dict[int, OperationResult] = {}
        left = list(enumerate(operations))
        for _ in range(_MAX_ATTEMPTS):
            response = await self._call([operation for _, operation in left])
            results.update((index, result) for (index, _), result in zip(left, response.results, strict=True))
            left = [(index, operation) for index, operation in left if results[index].verdict == "lost"]
            if not left:
                return [results[index] for index in range(len(operations))]
            subjects = [subject for _, operation in left for subject in operation.subjects]
            await self._restore(subjects, response.results[0].now)
        raise BackendUnavailable("it loses its state again and again")

    async def _call(self, operations: Sequence[SubjectOperation]) -> BackendResponse:
        response = await self._backend.execute(self._tenant_id, self.observed.incarnation, operations)
        for operation, result in zip(operations, response.results, strict=True):
            self.observed.record(response.incarnation, result, operation.subjects)
        return response

    async def _restore(self, subjects: Sequence[Subject], now: float) -> None:
        observed = self.observed
        distinct = tuple({subject.name: subject for subject in subjects}.values())
        totals = await self._totals.fetch(self._tenant_id, distinct, now)
        held = list(observed.held.values())
        restore = Restore(
            fresh=secrets.token_hex(8),
            usage=[*observed.usage(now), *totals],
            leases=[lease.record for lease in held[:_MAX_LEASES]],
            lifetime=LEASE_LIFETIME,
        )
        response = await self._backend.execute(self._tenant_id, observed.incarnation, [restore])
        observed.incarnation = response.incarnation
        observed.unreported |= {lease.id: lease for lease in held[_MAX_LEASES:]}
        await self._report_leases()

    async def _report_leases(self) -> None:
        """Report the leases that the backend does not know, in calls short enough for its time budget.

        Those of a call that fails remain unreported. A backend that has lost its state leaves the rest to `_restore`,
        which the next operation will cause.
        """
        unreported = self.observed.unreported
        while unreported:
            chunk = list(islice(unreported.values(), _MAX_LEASES))
            records = [lease.record for lease in chunk if lease.id in self.observed.held]
            if records:
                response = await self._call([ImportLeases(records, LEASE_LIFETIME)])
                if response.results[0].verdict == "lost":
                    return
            for lease in chunk:
                unreported.pop(lease.id, None)


@dataclass(slots=True, eq=False)
class _Reservation:
    """A request that waits for its admission."""

    lease: HeldLease
    result: asyncio.Future[OperationResult]
    sent: bool = False  # the backend may have received it

    @property
    def operation(self) -> Reserve:
        return Reserve(self.lease.id, self.lease.tokens, self.lease.subjects, LEASE_LIFETIME)

    def succeed(self, result: OperationResult) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.result.done():
            stopping = BackendUnavailable("this process is stopping")
            self.result.set_exception(error if isinstance(error, Exception) else stopping)


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """An extension or settlement of a lease that the backend has not acknowledged."""

    lease: HeldLease
    operation: Extend | Settle


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _MAX_LEASES):
        yield items[start : start + _MAX_LEASES]
