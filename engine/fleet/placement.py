"""Placement: which engine of a fleet serves a request. Pure functions, so that all processes and simulations decide
alike."""

from collections.abc import Iterable
from dataclasses import dataclass

from loragate.engine.fleet.rendezvous import ranked


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that could serve a request: the time for which its queue keeps it busy, and the requests of the asking
    process on it."""

    id: str
    queue_seconds: float
    requests: int


def choose(candidates: Iterable[Candidate], key: str) -> str | None:
    """Return the id of the least loaded engine, None without any.

    Among equally loaded ones, requests with the same `key`, their adapter, go to the same engine by rendezvous hashing.
    An engine that joins or leaves changes the choice only for keys that it gains or loses.
    """
    by_load: dict[tuple[float, int], list[str]] = {}
    for each in candidates:
        by_load.setdefault((each.queue_seconds, each.requests), []).append(each.id)
    least = by_load[min(by_load)] if by_load else []
    return next(iter(ranked(key, dict.fromkeys(least, 1.0))), None)
