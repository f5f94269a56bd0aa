"""The book of what a tenant, its keys and its adapters have used: what it is asked, and what it answers.

Two keep such books, and nobody can tell which: `LocalBook` in this process, `RedisBook` for all processes together.

One call asks any number of things about one tenant, one after the other, at one moment:

`reserve`  takes one request and its tokens from every subject, or refuses and takes nothing
`extend`   takes more tokens for a lease, whether there is room or not: a running request is not cut
`settle`   a lease has ended and used so many tokens in all; said twice, it counts once
`renew`    leases whose requests still run
`adopt`    leases that a worker gave out alone while the book was away
`restore`  what a worker remembers, where a book forgot
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from loragate.gateway.limits.subject import Kind

Verdict = Literal["ok", "no", "lost"]
Ask = Mapping[str, Any]  # "what" is one of the above
MICROSECONDS = 1_000_000
WINDOW = 60 * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Refused:
    """One limit that has no room. `wait` is in microseconds; None where it is not a matter of a bucket."""

    subject: int  # its place in the ask
    kind: Kind
    wait: float | None


@dataclass(frozen=True, slots=True)
class State:
    """Of one subject. Buckets by GCRA: when they will be empty; times are microseconds by the book's clock."""

    requests: float
    tokens: float
    day: int  # days since 1970; -1 where nobody counts them
    day_tokens: int
    month: int  # months since year 0, in the same way
    month_tokens: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Reply:
    """`states` are of the ask's subjects. "lost": the book does not know what it needs; hand it in by `restore`."""

    verdict: Verdict
    now: float  # by the book's clock
    refused: tuple[Refused, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """To one call. `replies` are in the order of what was asked."""

    born: str  # the book's incarnation: another one has forgotten everything
    replies: tuple[Reply, ...]


class Book(Protocol):
    """Raises BookAway where it cannot be asked now."""

    async def ask(self, tenant_id: str, born: str, asks: Sequence[Ask]) -> Answer:
        """`born` is the incarnation that the caller knows, or "" for none."""


class BookAway(Exception):
    """Slow or gone."""
