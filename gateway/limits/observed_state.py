"""State of a tenant's limits as observed by this process, to restore a backend that lost it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loragate.gateway.limits.backend import MICROSECONDS, WINDOW, OperationResult, SubjectState
from loragate.gateway.limits.operations import LeaseRecord, ObservedBuckets, SubjectUsage, WindowTotal
from loragate.gateway.limits.subject import Subject

FORGET_AFTER = 10 * WINDOW


@dataclass
class HeldLease:
    """A lease of this process that the backend has to know until it is settled there.

    One that was `granted_locally`, while the backend was unavailable, has not been charged there.
    """

    id: str
    subjects: tuple[Subject, ...]
    tokens: int
    granted_locally: bool

    @property
    def record(self) -> LeaseRecord:
        """The lease as a backend that does not know it imports it."""
        return LeaseRecord(self.id, 0 if self.granted_locally else self.tokens, self.subjects)


@dataclass
class ObservedState:
    """The leases that this process holds for one tenant, and the latest state that the backend reported."""

    incarnation: str = ""
    _clock_ahead: float = 0  # of the backend's clock before this process's
    subjects: dict[str, tuple[Subject, SubjectState, float]] = field(default_factory=dict)  # with the backend's time
    held: dict[str, HeldLease] = field(default_factory=dict)
    _used_at: dict[str, float] = field(default_factory=dict)  # by subject's name, in this process's time
    unreported: dict[str, HeldLease] = field(default_factory=dict)  # leases that the backend does not know so far

    def hold(self, lease: HeldLease) -> None:
        """Add a lease that was just granted."""
        self.held[lease.id] = lease
        if lease.granted_locally:
            self.unreported[lease.id] = lease

    def record(self, incarnation: str, result: OperationResult, subjects: Sequence[Subject]) -> None:
        """Remember the latest state that the backend reported."""
        if result.verdict == "lost":
            return
        self.incarnation, self._clock_ahead = incarnation, result.now - _monotonic()
        for subject, state in zip(subjects, result.states, strict=True):
            self.subjects[subject.name] = (subject, state, result.now)
            self._used_at.setdefault(subject.name, _monotonic())
            if state.in_flight or max(state.requests, state.tokens) > result.now:
                self._used_at[subject.name] = _monotonic()

    def forget_idle(self) -> None:
        """Forget subjects that have been idle for long: the ledger knows their totals, and nothing else is left."""
        used = {subject.name for lease in self.held.values() for subject in lease.subjects}
        for name in [name for name in self.subjects if name not in used and self._idle_time(name) > FORGET_AFTER]:
            del self.subjects[name], self._used_at[name]

    def _idle_time(self, name: str) -> float:
        return _monotonic() - self._used_at[name]

    def is_tight(self, lease: HeldLease) -> bool:
        """Return whether a request may be rejected because this lease holds a place.

        That is the case if more than half of the places were taken, or if it is unknown how many were.
        """
        for subject in lease.subjects:
            places = subject.limits.get("concurrency")
            if places is not None:
                observed = self.subjects.get(subject.name)
                if observed is None or 2 * observed[1].in_flight > places:
                    return True
        return False

    def usage(self, now: float) -> Iterator[SubjectUsage]:
        """Yield everything observed, for a backend by whose clock it is `now`."""
        later = now - (_monotonic() + self._clock_ahead)
        for name, (_, state, at) in self.subjects.items():
            yield SubjectUsage(
                name,
                ObservedBuckets(at, state.requests + later, state.tokens + later, state.in_flight),
                None if state.day < 0 else WindowTotal(state.day, state.day_tokens),
                None if state.month < 0 else WindowTotal(state.month, state.month_tokens),
            )


def _monotonic() -> float:
    return time.monotonic() * MICROSECONDS
