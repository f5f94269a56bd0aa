"""The limit backend in this process. `backend.lua` does the same in Redis, under the same tests; change both."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loragate.gateway.limits.backend import (
    MICROSECONDS,
    WINDOW,
    BackendResponse,
    ExceededLimit,
    OperationResult,
    Verdict,
)
from loragate.gateway.limits.operations import (
    Extend,
    ImportLeases,
    LeaseRecord,
    Operation,
    Renew,
    Reserve,
    Restore,
    Settle,
)
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.subject_entry import SubjectEntry
from loragate.gateway.limits.windows import day_number, month_number

_MIN_PURGED = 64  # entries, or tenants: fewer are not worth looking at
_TOMBSTONE = 60 * MICROSECONDS  # how long a settled lease is remembered, so that no settlement counts twice


def steady_clock() -> Callable[[], float]:
    """Return a clock of microseconds since 1970 that never jumps when the machine's clock is changed."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset) / 1000


class MemoryBackend:
    """The state of all tenants, within this process."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady_clock()
        self._tenants: dict[str, _TenantState] = {}
        self._purge_at = _MIN_PURGED

    async def execute(self, tenant_id: str, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        """See `LimitBackend`; this one is always available."""
        return self.execute_now(tenant_id, incarnation, operations)

    def execute_now(self, tenant_id: str, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        """Do the same for callers that cannot wait."""
        now = self._clock()
        if len(self._tenants) >= self._purge_at:
            self._purge(now)
        return self._tenants.setdefault(tenant_id, _TenantState()).execute(now, incarnation, operations)

    def discard(self, tenant_id: str) -> None:
        """Discard a tenant's state."""
        self._tenants.pop(tenant_id, None)

    def _purge(self, now: float) -> None:
        """Discard idle tenants; their number must double before the next time."""
        self._tenants = {tenant_id: state for tenant_id, state in self._tenants.items() if not state.is_idle(now)}
        self._purge_at = max(_MIN_PURGED, 2 * len(self._tenants))


@dataclass
class _Lease:
    since: float
    costs: dict[str, float]  # of one token, by subject
    expires: float
    tokens: int = 0
    settled: bool = False


_Outcome = tuple[Verdict, tuple[ExceededLimit, ...]]
_OK: _Outcome = ("ok", ())
_LOST: _Outcome = ("lost", ())


class _TenantState:
    """The state of one tenant; `execute` is one atomic step."""

    def __init__(self) -> None:
        self._incarnation = ""
        self._entries: dict[str, SubjectEntry] = {}
        self._leases: dict[str, _Lease] = {}
        self._expiries: list[tuple[float, str]] = []  # a heap; a renewed lease is in it several times
        self._purge_at = _MIN_PURGED

    def is_idle(self, now: float) -> bool:
        """Return whether nothing is lost with the tenant's state."""
        self._sweep(now)
        self._purge(now)
        return not self._entries and not self._leases

    def execute(self, now: float, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        self._sweep(now)
        if len(self._entries) >= self._purge_at:
            self._purge(now)
        results = tuple(self._result(now, incarnation, operation) for operation in operations)
        return BackendResponse(self._incarnation, results)

    def _result(self, now: float, incarnation: str, operation: Operation) -> OperationResult:
        if isinstance(operation, Restore):
            names = [usage.name for usage in operation.usage]
            verdict, exceeded = self._restore(now, incarnation, operation)
        else:
            names = [subject.name for subject in operation.subjects]
            known = self._knows(incarnation, operation.subjects)
            verdict, exceeded = self._apply(now, operation) if known else _LOST
        return OperationResult(verdict, now, exceeded, tuple(self._entry(name).state(now) for name in names))

    def _apply(self, now: float, operation: Reserve | Extend | Settle | Renew | ImportLeases) -> _Outcome:
        match operation:
            case Reserve():
                return self._reserve(now, operation)
            case Extend():
                self._extend(now, operation)
            case Settle():
                self._settle(now, operation)
            case Renew():
                self._renew(now, operation)
            case ImportLeases():
                for record in operation.leases:
                    self._import_lease(record, now, now + operation.lifetime)
        return _OK

    def _reserve(self, now: float, operation: Reserve) -> _Outcome:
        if operation.id in self._leases:
            return _OK
        exceeded = tuple(
            each
            for index, subject in enumerate(operation.subjects)
            for each in self._entry(subject.name).exceeded(index, subject.limits, operation.tokens, now)
        )
        if exceeded:
            return "no", exceeded
        lease = _Lease(now, _costs(operation.subjects), now + operation.lifetime)
        self._add_tokens(lease, operation.tokens, now)
        for subject in operation.subjects:
            entry = self._entry(subject.name)
            entry.leases += 1
            if "requests" in subject.limits:
                entry.requests.charge(now, WINDOW / subject.limits["requests"])
        self._put(operation.id, lease, lease.expires)
        return _OK

    def _extend(self, now: float, operation: Extend) -> None:
        lease = self._leases.get(operation.id)
        if lease is not None and not lease.settled:
            self._add_tokens(lease, operation.tokens, now)
            self._put(operation.id, lease, now + operation.lifetime)

    def _settle(self, now: float, operation: Settle) -> None:
        """Charge the tokens even for an unknown lease: it expired, or was granted while the backend was unavailable."""
        known = self._leases.get(operation.id)
        lease = known or _Lease(now, _costs(operation.subjects), now)
        if not lease.settled:
            self._add_tokens(lease, operation.tokens - lease.tokens, now)
            if known is not None:
                self._release_places(lease)
            lease.settled = True
            self._put(operation.id, lease, now + _TOMBSTONE)

    def _renew(self, now: float, operation: Renew) -> None:
        for lease_id in operation.ids:
            lease = self._leases.get(lease_id)
            if lease is not None and not lease.settled:
                self._put(lease_id, lease, now + operation.lifetime)

    def _restore(self, now: float, incarnation: str, operation: Restore) -> _Outcome:
        lost = self._incarnation == "" or self._incarnation != incarnation
        self._incarnation = self._incarnation or operation.fresh
        for record in operation.leases if lost else ():
            self._import_lease(record, now, now + operation.lifetime)
        for usage in operation.usage:
            self._entry(usage.name).restore(usage, now, now + operation.lifetime, lost=lost)
        return _OK

    def _import_lease(self, record: LeaseRecord, now: float, until: float) -> None:
        if record.id in self._leases:
            return
        self._put(record.id, _Lease(now, _costs(record.subjects), until, record.tokens), until)
        for subject in record.subjects:
            entry = self._entry(subject.name)
            entry.leases += 1
            entry.foreign_leases = max(0, entry.foreign_leases - 1)

    def _put(self, lease_id: str, lease: _Lease, expires: float) -> None:
        lease.expires = expires
        self._leases[lease_id] = lease
        heapq.heappush(self._expiries, (expires, lease_id))

    def _purge(self, now: float) -> None:
        """Discard idle entries; their number must double before the next time."""
        self._entries = {name: entry for name, entry in self._entries.items() if not entry.is_idle(now)}
        self._purge_at = max(_MIN_PURGED, 2 * len(self._entries))

    def _sweep(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, lease_id = heapq.heappop(self._expiries)
            lease = self._leases.get(lease_id)
            if lease is None or lease.expires > now:
                continue
            del self._leases[lease_id]
            if not lease.settled:
                self._add_tokens(lease, -lease.tokens, now)
                self._release_places(lease)

    def _add_tokens(self, lease: _Lease, tokens: int, now: float) -> None:
        for name, cost in lease.costs.items():
            entry = self._entry(name)
            entry.roll_over(now)
            entry.used_at = now
            if tokens > 0 and cost > 0:
                entry.tokens.charge(now, tokens * cost)
            elif tokens < 0 and cost > 0:
                entry.tokens.refund(now, -tokens * cost, lease.since)
            for total, window in ((entry.day, day_number(lease.since)), (entry.month, month_number(lease.since))):
                if total.window == window:
                    total.tokens = max(0, total.tokens + tokens)
        lease.tokens += tokens

    def _release_places(self, lease: _Lease) -> None:
        for name in lease.costs:
            entry = self._entry(name)
            entry.leases = max(0, entry.leases - 1)

    def _knows(self, incarnation: str, subjects: Sequence[Subject]) -> bool:
        if self._incarnation == "" or incarnation not in ("", self._incarnation):
            return False
        entries = [(subject.limits, self._entry(subject.name)) for subject in subjects]
        return not any(
            ("day" in limits and entry.day.window < 0) or ("month" in limits and entry.month.window < 0)
            for limits, entry in entries
        )

    def _entry(self, name: str) -> SubjectEntry:
        return self._entries.setdefault(name, SubjectEntry())


def _costs(subjects: Sequence[Subject]) -> dict[str, float]:
    limits = {subject.name: subject.limits for subject in subjects}
    return {name: WINDOW / each["tokens"] if "tokens" in each else 0.0 for name, each in limits.items()}
