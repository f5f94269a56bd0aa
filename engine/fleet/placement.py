"""Placement: which engine of a fleet serves a request. Gateways and simulations decide by the same code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loragate.engine.fleet.demand import DemandMeter
from loragate.engine.fleet.rendezvous import ranked
from loragate.engine.fleet.replica_sets import Demand, SetSize, resize

AdapterId = tuple[str, str]
"""The tenant's id and the digest."""

NEAR_SECONDS = 0.05
NEAR_REQUESTS = 2
"""Engines whose queues and requests exceed the least loaded one's by at most this much count as equally loaded."""

HALF_LIFE_SECONDS = 60.0
"""After this time, work counts half as much for an adapter's demand."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that could serve a request: the time for which its queue keeps it busy, the requests of the asking
    process on it, and the adapters that its device has room for."""

    id: str
    queue_seconds: float
    requests: int
    slots: int = 1


class Holdings(Protocol):
    """The adapters whose bytes are at the engines."""

    def holds(self, engine_id: str, adapter: AdapterId) -> bool:
        """Return whether the bytes are on the engine's disk, as far as is known."""
        ...

    def fetch(self, engine_id: str, adapter: AdapterId) -> None:
        """Begin to bring the bytes there, unless that has begun already."""
        ...


def choose(candidates: Sequence[Candidate], key: str) -> str | None:
    """Return the id of one of the least loaded engines, None without any.

    Among engines that are about equally loaded, requests with the same `key` go to the same one by rendezvous hashing.
    An engine that joins or leaves changes the choice only for keys that it gains or loses.
    """
    if not candidates:
        return None
    least = min(candidates, key=lambda each: (each.queue_seconds, each.requests))
    near = [
        each.id
        for each in candidates
        if each.queue_seconds <= least.queue_seconds + NEAR_SECONDS and each.requests <= least.requests + NEAR_REQUESTS
    ]
    return ranked(key, dict.fromkeys(near, 1.0))[0]


class Placement:
    """Chooses engines by the adapters' replica sets, whose sizes follow the demand that passes here. One per process.

    Times are in seconds by a clock that does not go back.
    """

    def __init__(self, holdings: Holdings, half_life: float = HALF_LIFE_SECONDS) -> None:
        self._holdings = holdings
        self._demand: DemandMeter[AdapterId] = DemandMeter(half_life)
        self._sizes: dict[AdapterId, SetSize] = {}  # of sets with more than one engine
        self._others: Mapping[AdapterId, int] = {}

    def place(self, adapter: AdapterId | None, prefix: str, candidates: Sequence[Candidate], now: float) -> str | None:
        """Return the id of the engine for a request, None without any.

        Requests for the base model (None) may go to all engines, those for an adapter to the members of its set.
        `prefix` stands for the beginning of the prompt: requests with the same one share cached keys and values.
        """
        if adapter is None or len(candidates) < 2:
            return choose(candidates, prefix)
        by_id = {each.id: each for each in candidates}
        order = ranked(_key(adapter), {each.id: float(max(1, each.slots)) for each in candidates})
        wait = min(by_id[each].queue_seconds for each in order[: self.size(adapter)])
        self._resize(adapter, Demand(self._demand.share(adapter), wait), len(candidates), now)
        usable = self._with_bytes(adapter, order, order[: self.size(adapter)])
        return choose([by_id[each] for each in usable], f"{_key(adapter)} {prefix}")

    def record(self, adapter: AdapterId, work: float, now: float) -> None:
        """Record the work that a request took, for example in seconds on its engine."""
        self._demand.record(adapter, work, now)

    def size(self, adapter: AdapterId) -> int:
        """Return for how many engines there is demand, here or at another process."""
        return max(self._sizes.get(adapter, SetSize()).engines, self._others.get(adapter, 1))

    def large_sets(self, engines: int, now: float) -> dict[AdapterId, int]:
        """Return the adapters that need more than one engine by the demand that passes here, with the number."""
        for adapter in list(self._sizes):
            self._resize(adapter, Demand(self._demand.share(adapter)), engines, now)
        return {adapter: size.engines for adapter, size in self._sizes.items()}

    def use_sizes_of_others(self, sizes: Mapping[AdapterId, int]) -> None:
        """Use the sizes that other processes need, too. What was given before no longer counts."""
        self._others = sizes

    def _with_bytes(self, adapter: AdapterId, engines: Sequence[str], members: Sequence[str]) -> Sequence[str]:
        """Return the members of a set that have the adapter's bytes, and begin to bring them to the others. While none
        has them, return the other engines that do, or else the first member, which will fetch them for the request."""
        holders = [each for each in members if self._holdings.holds(each, adapter)]
        if len(holders) == len(members):
            return holders
        holders = holders or [each for each in engines if self._holdings.holds(each, adapter)]
        for each in members if holders else ():
            self._holdings.fetch(each, adapter)
        return holders or members[:1]

    def _resize(self, adapter: AdapterId, demand: Demand, engines: int, now: float) -> None:
        size = resize(self._sizes.get(adapter, SetSize()), demand, engines, now)
        if size.engines > 1:
            self._sizes[adapter] = size
        else:
            self._sizes.pop(adapter, None)


def _key(adapter: AdapterId) -> str:
    return "/".join(adapter)
