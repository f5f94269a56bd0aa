"""The usage of one subject of limits, as `MemoryBackend` keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loragate.gateway.limits.backend import WINDOW, ExceededLimit, SubjectState
from loragate.gateway.limits.operations import SubjectUsage, WindowTotal
from loragate.gateway.limits.subject import Kind
from loragate.gateway.limits.windows import Bucket, day_number, month_number

IDLE = 60 * WINDOW  # after which an unused entry is dropped; the ledger knows what was used by then
_TOLERANCE = 0.5  # for rounding in the buckets' arithmetic


@dataclass
class _WindowTotal:
    window: int = -1  # which day or month; -1: not counted
    tokens: int = 0

    def roll_over(self, current: int) -> None:
        if 0 <= self.window < current:
            self.window, self.tokens = current, 0

    def restore(self, known: WindowTotal, current: int) -> None:
        mine = self.tokens if self.window == current else 0
        self.window, self.tokens = current, max(mine, known.tokens if known.window == current else 0)


@dataclass
class SubjectEntry:
    """Buckets, totals and leases of one subject."""

    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    day: _WindowTotal = field(default_factory=_WindowTotal)
    month: _WindowTotal = field(default_factory=_WindowTotal)
    leases: int = 0
    foreign_leases: int = 0  # of other processes, which have not imported them yet
    foreign_leases_until: float = 0
    used_at: float = 0
    restored_at: float = 0  # when the state was observed that was restored after a loss

    def roll_over(self, now: float) -> None:
        self.day.roll_over(day_number(now))
        self.month.roll_over(month_number(now))

    def is_idle(self, now: float) -> bool:
        """Return whether nothing is lost with the entry: its buckets are empty, and the ledger has its totals."""
        empty = self.requests.empty_at <= now and self.tokens.empty_at <= now
        return empty and self.in_flight(now) == 0 and now - self.used_at > IDLE

    def in_flight(self, now: float) -> int:
        return self.leases + (self.foreign_leases if self.foreign_leases_until > now else 0)

    def restore(self, usage: SubjectUsage, now: float, until: float, *, lost: bool) -> None:
        """Take over what a process remembers: the later state counts, and the larger totals."""
        seen = usage.buckets
        if lost and seen is not None and seen.at > self.restored_at:
            self.restored_at = seen.at
            self.requests.empty_at = max(self.requests.empty_at, seen.requests_empty_at)
            if seen.tokens_empty_at > self.tokens.empty_at:
                self.tokens.empty_at = seen.tokens_empty_at
                self.tokens.note_low(now, self.tokens.backlog(now))
            missing = seen.in_flight - self.leases - self.foreign_leases
            if missing > 0:
                self.foreign_leases, self.foreign_leases_until = self.foreign_leases + missing, until
        if usage.day is not None:
            self.day.restore(usage.day, day_number(now))
        if usage.month is not None:
            self.month.restore(usage.month, month_number(now))

    def exceeded(self, index: int, limits: Mapping[Kind, int], tokens: int, now: float) -> list[ExceededLimit]:
        """Return those of the subject's `limits` that have no room for one request of `tokens`."""
        self.roll_over(now)
        exceeded = []
        buckets: tuple[tuple[Kind, Bucket, int], ...] = (
            ("requests", self.requests, 1),
            ("tokens", self.tokens, tokens),
        )
        for kind, bucket, requested in buckets:
            if kind in limits:
                wait = bucket.backlog(now) + requested * WINDOW / limits[kind] - WINDOW
                if wait > _TOLERANCE:
                    exceeded.append(ExceededLimit(index, kind, wait))
        totals: tuple[tuple[Kind, int], ...] = (
            ("concurrency", self.in_flight(now) + 1),
            ("day", self.day.tokens + tokens),
            ("month", self.month.tokens + tokens),
        )
        full = [kind for kind, total in totals if total > limits.get(kind, total)]
        return exceeded + [ExceededLimit(index, kind, None) for kind in full]

    def state(self, now: float) -> SubjectState:
        self.roll_over(now)
        return SubjectState(
            requests=self.requests.empty_at,
            tokens=self.tokens.empty_at,
            day=self.day.window,
            day_tokens=self.day.tokens,
            month=self.month.window,
            month_tokens=self.month.tokens,
            in_flight=self.in_flight(now),
        )
