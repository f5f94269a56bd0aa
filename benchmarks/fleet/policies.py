"""Policies of placement: ours, and those that it is compared with."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from benchmarks.fleet.engine import SimulatedEngine
from benchmarks.fleet.workload import Arrival
from loragate.engine.fleet.placement import AdapterId, Candidate, Placement
from loragate.engine.fleet.rendezvous import ranked
from loragate.engine.fleet.replica_sets import Demand, SetSize, resize
from loragate.engine.sequence.request import AdapterKey

Engines = Mapping[str, SimulatedEngine]


class Policy(Protocol):
    """Chooses the engine for each request."""

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        """Return the name of one of the engines, all of which are alive."""


class AtRandom:
    """Any engine."""

    def __init__(self) -> None:
        self._random = Random(1)

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        return self._random.choice(list(engines))


class LeastLoaded:
    """The engine with the fewest open requests."""

    def __init__(self) -> None:
        self._random = Random(1)

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        return min(engines, key=lambda name: (engines[name].load, self._random.random()))


class PreferHolder:
    """The least loaded engine that has the adapter on its device; without one that is not overloaded, any engine."""

    def __init__(self, spill_at: float = 1.5) -> None:
        self._spill_at = spill_at
        self._least = LeastLoaded()

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        holders = {name: each for name, each in engines.items() if each.adapters.is_resident(arrival.key)}
        near = {name: each for name, each in holders.items() if each.load < self._spill_at}
        return self._least.choose(arrival, near or engines, now)


class Rendezvous:
    """The first engine in the adapter's order."""

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        return ranked(_name(arrival.key), {name: each.slots for name, each in engines.items()})[0]


class ReplicaSets:
    """Ours: the placement of gateways."""

    def __init__(self) -> None:
        self._placement = Placement(self)
        self._engines: Engines = {}

    def choose(self, arrival: Arrival, engines: Engines, now: float) -> str:
        self._engines = engines
        adapter = arrival.key.tenant_id, arrival.key.digest
        self._placement.record(adapter, arrival.new_tokens + arrival.prompt / 4, now)
        engine = self._placement.place(adapter, "", [_candidate(each) for each in engines.values()], now)
        assert engine is not None
        return engine

    def holds(self, engine_id: str, adapter: AdapterId) -> bool:
        """Return whether an engine has the bytes."""
        return AdapterKey(*adapter) in self._engines[engine_id].disk

    def fetch(self, engine_id: str, adapter: AdapterId) -> None:
        """Bring the bytes to an engine."""
        self._engines[engine_id].prefetch(AdapterKey(*adapter))


def sets_of(shares: Mapping[AdapterKey, float], weights: Mapping[str, float]) -> dict[str, set[str]]:
    """Return the replica set of each adapter, if their demand is this and lasts."""
    sizes = {key: resize(SetSize(), Demand(share), len(weights), 0.0) for key, share in shares.items()}
    return {_name(key): set(ranked(_name(key), weights)[: size.engines]) for key, size in sizes.items()}


def _candidate(engine: SimulatedEngine) -> Candidate:
    """Return an engine as a gateway sees it: beyond a full batch requests wait, a batch of them for about a second."""
    return Candidate(engine.name, max(0.0, engine.load - 1.0), len(engine.open), engine.slots)


def best_static_loads(ranks: Sequence[int], slots: int) -> float:
    """Return the loads a request if the most frequent adapters always filled the slots."""
    kept = {rank for rank, _ in Counter(ranks).most_common(slots)}
    return sum(rank not in kept for rank in ranks) / len(ranks)


def belady_loads(ranks: Sequence[int], slots: int) -> float:
    """Return the loads a request of one cache that knows the future (Belady, IBM Systems Journal 5(2), 1966)."""
    never = len(ranks)
    following = [never] * never
    last: dict[int, int] = {}
    for index in range(never - 1, -1, -1):
        following[index] = last.get(ranks[index], never)
        last[ranks[index]] = index
    held: dict[int, int] = {}
    loads = 0
    for index, rank in enumerate(ranks):
        if rank not in held:
            loads += 1
            if len(held) == slots:
                del held[max(held, key=held.__getitem__)]
        held[rank] = following[index]
    return loads / never


def _name(key: AdapterKey) -> str:
    return f"{key.tenant_id}/{key.digest}"
