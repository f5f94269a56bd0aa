"""A book in this process. `book.lua` is the same for Redis, under the same tests; change both."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loragate.gateway.limits.backend import MICROSECONDS, WINDOW, Answer, Ask, Refused, Reply, State, Verdict
from loragate.gateway.limits.calendar import day_of, month_of
from loragate.gateway.limits.gcra import Bucket
from loragate.gateway.limits.subject import Kind

_TOMBSTONE = 60 * MICROSECONDS  # how long a settled lease is remembered, so that no settlement counts twice
_TOLERANCE = 0.5  # of the buckets' arithmetic


def steady_clock() -> Callable[[], float]:
    """Microseconds since 1970 that never jump, whatever becomes of the machine's clock."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset) / 1000


class LocalBook:
    """All tenants'."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady_clock()
        self._tenants: dict[str, _TenantBook] = {}

    async def ask(self, tenant_id: str, born: str, asks: Sequence[Ask]) -> Answer:
        """See `Book`; this one is never away."""
        return self.answer(tenant_id, born, asks)

    def answer(self, tenant_id: str, born: str, asks: Sequence[Ask]) -> Answer:
        """The same, for those who cannot wait."""
        return self._tenants.setdefault(tenant_id, _TenantBook()).answer(self._clock(), born, asks)

    def forget(self, tenant_id: str) -> None:
        """All about one tenant."""
        self._tenants.pop(tenant_id, None)


@dataclass
class _Sum:
    window: int = -1  # which day or month; -1: nobody counts
    tokens: int = 0

    def roll_over(self, current: int) -> None:
        if 0 <= self.window < current:
            self.window, self.tokens = current, 0


@dataclass
class _Entry:
    """One subject's."""

    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    day: _Sum = field(default_factory=_Sum)
    month: _Sum = field(default_factory=_Sum)
    leases: int = 0
    strangers: int = 0  # leases of other workers, which have not handed them in yet
    strangers_until: float = 0
    handed_in: float = 0  # when that was seen which was handed in after all had been forgotten

    def roll_over(self, now: float) -> None:
        self.day.roll_over(day_of(now))
        self.month.roll_over(month_of(now))

    def in_flight(self, now: float) -> int:
        return self.leases + (self.strangers if self.strangers_until > now else 0)


@dataclass
class _Lease:
    since: float
    costs: dict[str, float]  # by subject, of one token
    expires: float
    tokens: int = 0
    settled: bool = False


class _TenantBook:
    """One tenant's; `answer` is one atomic step."""

    def __init__(self) -> None:
        self._born = ""
        self._entries: dict[str, _Entry] = {}
        self._leases: dict[str, _Lease] = {}
        self._expiries: list[tuple[float, str]] = []  # a heap; a lease that was renewed is in it again

    def answer(self, now: float, born: str, asks: Sequence[Ask]) -> Answer:
        self._sweep(now)
        replies = tuple(self._reply(now, born, ask) for ask in asks)
        return Answer(self._born, replies)

    def _reply(self, now: float, born: str, ask: Ask) -> Reply:
        acts = {
            "reserve": self._reserve,
            "extend": self._extend,
            "settle": self._settle,
            "renew": self._renew,
            "adopt": self._adopt,
            "restore": self._restore,
        }
        verdict, refused = acts[ask["what"]](now, born, ask)
        return Reply(verdict, now, refused, tuple(self._state(each["name"], now) for each in ask.get("subjects", ())))

    def _reserve(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        subjects, tokens = details["subjects"], details["tokens"]
        if self._is_unknown(born, subjects):
            return "lost", ()
        if details["id"] in self._leases:
            return "ok", ()
        refused = tuple(
            refusal for place, asked in enumerate(subjects) for refusal in self._refusals(place, asked, tokens, now)
        )
        if refused:
            return "no", refused
        lease = _Lease(now, _costs(subjects), now + details["life"])
        self._add_tokens(lease, tokens, now)
        for asked in subjects:
            entry = self._entry(asked["name"])
            entry.leases += 1
            if "requests" in asked:
                entry.requests.charge(now, WINDOW / asked["requests"])
        self._put(details["id"], lease, lease.expires)
        return "ok", ()

    def _extend(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        if self._is_unknown(born, details["subjects"]):
            return "lost", ()
        lease = self._leases.get(details["id"])
        if lease is not None and not lease.settled:
            self._add_tokens(lease, details["tokens"], now)
            self._put(details["id"], lease, now + details["life"])
        return "ok", ()

    def _settle(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        """A lease that is not there expired, or was given out while nobody could be asked: its tokens are owed."""
        if self._is_unknown(born, details["subjects"]):
            return "lost", ()
        known = self._leases.get(details["id"])
        lease = known or _Lease(now, _costs(details["subjects"]), now)
        if not lease.settled:
            self._add_tokens(lease, details["tokens"] - lease.tokens, now)
            if known is not None:
                self._leave(lease)
            lease.settled = True
            self._put(details["id"], lease, now + _TOMBSTONE)
        return "ok", ()

    def _renew(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        if self._is_unknown(born, details["subjects"]):
            return "lost", ()
        for lease_id in details["ids"]:
            lease = self._leases.get(lease_id)
            if lease is not None and not lease.settled:
                self._put(lease_id, lease, now + details["life"])
        return "ok", ()

    def _adopt(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        """Leases that were given out while nobody could be asked."""
        if self._is_unknown(born, details["subjects"]):
            return "lost", ()
        for held in details["leases"]:
            self._restore_lease(held, now, now + details["life"])
        return "ok", ()

    def _restore(self, now: float, born: str, details: Ask) -> tuple[Verdict, tuple[Refused, ...]]:
        lost = self._born == "" or self._born != born
        self._born = self._born or details["fresh"]
        for held in details["leases"] if lost else ():
            self._restore_lease(held, now, now + details["life"])
        for asked in details["subjects"]:
            self._restore_state(asked, now, now + details["life"], lost=lost)
        return "ok", ()

    def _restore_state(self, asked: Ask, now: float, until: float, *, lost: bool) -> None:
        entry, seen = self._entry(asked["name"]), asked.get("seen")
        if lost and seen is not None and seen["at"] > entry.handed_in:
            entry.handed_in = seen["at"]
            entry.requests.empty_at = max(entry.requests.empty_at, seen["r"])
            if seen["t"] > entry.tokens.empty_at:
                entry.tokens.empty_at = seen["t"]
                entry.tokens.note_low(now, entry.tokens.backlog(now))
            missing = seen["c"] - entry.leases - entry.strangers
            if missing > 0:
                entry.strangers, entry.strangers_until = entry.strangers + missing, until
        for sum_, window, total, current in (
            (entry.day, "d", "ds", day_of(now)),
            (entry.month, "m", "ms", month_of(now)),
        ):
            if total in asked:
                known = sum_.tokens if sum_.window == current else 0
                sum_.tokens = max(known, asked[total] if asked[window] == current else 0)
                sum_.window = current

    def _restore_lease(self, held: Ask, now: float, until: float) -> None:
        if held["id"] in self._leases:
            return
        self._put(held["id"], _Lease(now, _costs(held["subjects"]), until, held["tokens"]), until)
        for asked in held["subjects"]:
            entry = self._entry(asked["name"])
            entry.leases += 1
            entry.strangers = max(0, entry.strangers - 1)

    def _put(self, lease_id: str, lease: _Lease, expires: float) -> None:
        lease.expires = expires
        self._leases[lease_id] = lease
        heapq.heappush(self._expiries, (expires, lease_id))

    def _sweep(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, lease_id = heapq.heappop(self._expiries)
            lease = self._leases.get(lease_id)
            if lease is None or lease.expires > now:
                continue
            del self._leases[lease_id]
            if not lease.settled:
                self._add_tokens(lease, -lease.tokens, now)
                self._leave(lease)

    def _add_tokens(self, lease: _Lease, tokens: int, now: float) -> None:
        for name, cost in lease.costs.items():
            entry = self._entry(name)
            entry.roll_over(now)
            if tokens > 0 and cost > 0:
                entry.tokens.charge(now, tokens * cost)
            elif tokens < 0 and cost > 0:
                entry.tokens.give_back(now, -tokens * cost, lease.since)
            for sum_, then in ((entry.day, day_of(lease.since)), (entry.month, month_of(lease.since))):
                if sum_.window == then:
                    sum_.tokens = max(0, sum_.tokens + tokens)
        lease.tokens += tokens

    def _leave(self, lease: _Lease) -> None:
        for name in lease.costs:
            entry = self._entry(name)
            entry.leases = max(0, entry.leases - 1)

    def _is_unknown(self, born: str, subjects: Sequence[Ask]) -> bool:
        if self._born == "" or born not in ("", self._born):
            return True
        return any(
            kind in asked and sum_.window < 0
            for asked in subjects
            for kind, sum_ in (("day", self._entry(asked["name"]).day), ("month", self._entry(asked["name"]).month))
        )

    def _refusals(self, place: int, asked: Ask, tokens: int, now: float) -> list[Refused]:
        entry = self._entry(asked["name"])
        entry.roll_over(now)
        refused = []
        kinds: tuple[tuple[Kind, Bucket, int], ...] = (
            ("requests", entry.requests, 1),
            ("tokens", entry.tokens, tokens),
        )
        for kind, bucket, wanted in kinds:
            if kind in asked:
                wait = bucket.backlog(now) + wanted * WINDOW / asked[kind] - WINDOW
                if wait > _TOLERANCE:
                    refused.append(Refused(place, kind, wait))
        full: tuple[tuple[Kind, int], ...] = (
            ("concurrency", entry.in_flight(now) + 1),
            ("day", entry.day.tokens + tokens),
            ("month", entry.month.tokens + tokens),
        )
        return refused + [Refused(place, kind, None) for kind, would_be in full if would_be > asked.get(kind, would_be)]

    def _entry(self, name: str) -> _Entry:
        return self._entries.setdefault(name, _Entry())

    def _state(self, name: str, now: float) -> State:
        entry = self._entry(name)
        entry.roll_over(now)
        return State(
            entry.requests.empty_at,
            entry.tokens.empty_at,
            entry.day.window,
            entry.day.tokens,
            entry.month.window,
            entry.month.tokens,
            entry.in_flight(now),
        )


def _costs(subjects: Sequence[Ask]) -> dict[str, float]:
    return {asked["name"]: WINDOW / asked["tokens"] if "tokens" in asked else 0.0 for asked in subjects}
