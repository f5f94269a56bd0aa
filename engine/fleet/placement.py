"""Placement: which engine of a fleet serves a request. Pure functions, so that all processes and simulations decide
alike."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b


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
    return max(least, key=lambda id_: _score(key, id_)) if len(least) > 1 else next(iter(least), None)


def _score(key: str, engine_id: str) -> bytes:
    return blake2b(f"{engine_id}\0{key}".encode(), digest_size=8).digest()
