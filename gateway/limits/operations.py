"""The operations of a limit backend, and their wire form: JSON that `backend.lua` reads.

A backend executes any number of operations on one tenant, in order, at one moment. Times are microseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loragate.gateway.limits.subject import Subject


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease as the process that holds it reports it to a backend."""

    id: str
    tokens: int
    subjects: Sequence[Subject]

    @property
    def wire(self) -> dict[str, Any]:
        return {"id": self.id, "tokens": self.tokens, "subjects": [subject.wire for subject in self.subjects]}

    @classmethod
    def from_wire(cls, document: Mapping[str, Any]) -> "LeaseRecord":
        """Return the record that has this wire form."""
        subjects = [dict(subject) for subject in document["subjects"]]
        return cls(document["id"], document["tokens"], [Subject(each.pop("name"), "", {}, each) for each in subjects])


@dataclass(frozen=True, slots=True)
class WindowTotal:
    """The tokens used in one day (numbered since 1970) or one month (numbered since year 0)."""

    window: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ObservedBuckets:
    """A subject's buckets and leases as a backend reported them at `at`; the buckets are empty at the given times."""

    at: float
    requests_empty_at: float
    tokens_empty_at: float
    in_flight: int

    @property
    def wire(self) -> dict[str, Any]:
        return {"at": self.at, "r": self.requests_empty_at, "t": self.tokens_empty_at, "c": self.in_flight}


@dataclass(frozen=True, slots=True)
class SubjectUsage:
    """The known usage of the subject `name`; None for what is unknown or unlimited."""

    name: str
    buckets: ObservedBuckets | None = None
    day: WindowTotal | None = None
    month: WindowTotal | None = None

    @property
    def wire(self) -> dict[str, Any]:
        document: dict[str, Any] = {"name": self.name}
        if self.buckets is not None:
            document["seen"] = self.buckets.wire
        if self.day is not None:
            document |= {"d": self.day.window, "ds": self.day.tokens}
        if self.month is not None:
            document |= {"m": self.month.window, "ms": self.month.tokens}
        return document


@dataclass(frozen=True, slots=True)
class Reserve:
    """Take one request and its tokens from every subject, or reject the request and take nothing."""

    id: str
    tokens: int
    subjects: Sequence[Subject]
    lifetime: float

    @property
    def wire(self) -> dict[str, Any]:
        record = LeaseRecord(self.id, self.tokens, self.subjects)
        return {"what": "reserve", "life": self.lifetime, **record.wire}


@dataclass(frozen=True, slots=True)
class Extend:
    """Take more tokens for a lease even if no room is left: a running request is not interrupted."""

    id: str
    tokens: int
    subjects: Sequence[Subject]
    lifetime: float

    @property
    def wire(self) -> dict[str, Any]:
        record = LeaseRecord(self.id, self.tokens, self.subjects)
        return {"what": "extend", "life": self.lifetime, **record.wire}


@dataclass(frozen=True, slots=True)
class Settle:
    """End a lease that used `tokens` in total. Repeating the operation changes nothing."""

    id: str
    tokens: int
    subjects: Sequence[Subject]

    @property
    def wire(self) -> dict[str, Any]:
        return {"what": "settle", **LeaseRecord(self.id, self.tokens, self.subjects).wire}


@dataclass(frozen=True, slots=True)
class Renew:
    """Postpone the expiry of leases whose requests are still running."""

    ids: Sequence[str]
    subjects: Sequence[Subject]
    lifetime: float

    @property
    def wire(self) -> dict[str, Any]:
        subjects = [subject.wire for subject in self.subjects]
        return {"what": "renew", "life": self.lifetime, "ids": list(self.ids), "subjects": subjects}


@dataclass(frozen=True, slots=True)
class ImportLeases:
    """Add leases that a process granted while the backend was unavailable."""

    leases: Sequence[LeaseRecord]
    lifetime: float
    subjects: Sequence[Subject] = ()

    @property
    def wire(self) -> dict[str, Any]:
        leases = [lease.wire for lease in self.leases]
        return {"what": "adopt", "life": self.lifetime, "leases": leases, "subjects": []}


@dataclass(frozen=True, slots=True)
class Restore:
    """Give a backend that lost its state what this process remembers.

    `fresh` becomes the incarnation of a backend that has none.
    """

    fresh: str
    usage: Sequence[SubjectUsage]
    leases: Sequence[LeaseRecord]
    lifetime: float

    @property
    def wire(self) -> dict[str, Any]:
        return {
            "what": "restore",
            "life": self.lifetime,
            "fresh": self.fresh,
            "subjects": [usage.wire for usage in self.usage],
            "leases": [lease.wire for lease in self.leases],
        }


SubjectOperation = Reserve | Extend | Settle | Renew | ImportLeases
Operation = SubjectOperation | Restore
