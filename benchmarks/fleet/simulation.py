"""One simulation: a workload, a number of engines, a policy."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.fleet.clock import Clock
from benchmarks.fleet.engine import Costs, Served, SimulatedEngine
from benchmarks.fleet.policies import Policy
from benchmarks.fleet.workload import Arrival, Workload
from loragate.engine.adapters.use_frequency import UseFrequency

_WARM_UP = 0.25  # the part of the requests that is not counted
_COLDEST = 0.9  # adapters beyond this part of all, by rank, are the coldest decile


@dataclass(frozen=True)
class Fleet:
    """The engines of a simulation, and what happens to them. Of `resized`, each is (a time, a number of engines)."""

    engines: int
    slots: int = 16
    costs: Costs = field(default_factory=Costs)
    evict_least_recent: bool = False  # as engines do that do not count uses
    resized: tuple[tuple[float, int], ...] = ()
    killed_at: float | None = None  # the first engine dies, and its open requests go elsewhere


class Simulation:
    """Runs one workload on one fleet under one policy."""

    def __init__(self, fleet: Fleet, workload: Workload, policy: Policy) -> None:
        self.clock = Clock()
        self.engines: dict[str, SimulatedEngine] = {}
        self.served: list[Served] = []
        self.retried = 0
        self._fleet = fleet
        self._workload = workload
        self._policy = policy
        self._dead: list[SimulatedEngine] = []
        self._resize(fleet.engines)
        for time, engines in fleet.resized:
            self.clock.at(time, lambda engines=engines: self._resize(engines))
        if fleet.killed_at is not None:
            self.clock.at(fleet.killed_at, self._kill)

    def run(self, requests: int) -> dict[str, float]:
        """Serve so many requests; return the figures of those after the warm-up."""
        arrivals = self._workload.arrivals(requests)
        first = int(requests * _WARM_UP)
        loads_before = 0

        def follow() -> None:
            arrival = next(arrivals, None)
            if arrival is not None:
                self.clock.at(arrival.at, lambda: arrive(arrival))

        def arrive(arrival: Arrival) -> None:
            nonlocal loads_before
            if arrival.number == first:
                loads_before = self.loads
            self._submit(arrival)
            follow()

        follow()
        self.clock.run()
        assert len(self.served) == requests, "each request is served once"
        return self._figures(first, loads_before)

    @property
    def loads(self) -> int:
        """Loads of adapters to devices so far."""
        return sum(engine.loads for engine in [*self.engines.values(), *self._dead])

    def _submit(self, arrival: Arrival) -> None:
        self.engines[self._policy.choose(arrival, self.engines, self.clock.now)].submit(arrival)

    def _resize(self, engines: int) -> None:
        """Add engines, or drain those that were added last: they end what they have, and get nothing new."""
        for number in range(engines):
            name = f"engine-{number}"
            if name not in self.engines:
                self.engines[name] = self._new_engine(name)
        for name in list(self.engines)[engines:]:
            self._dead.append(self.engines.pop(name))

    def _new_engine(self, name: str) -> SimulatedEngine:
        fleet = self._fleet
        frequency = UseFrequency(sample=1) if fleet.evict_least_recent else None  # forgets each use at once
        return SimulatedEngine(
            name, self.clock, self.served.append, fleet.slots, costs=fleet.costs, frequency=frequency
        )

    def _kill(self) -> None:
        name = next(iter(self.engines))
        engine = self.engines.pop(name)
        self._dead.append(engine)
        lost = engine.stop()
        self.retried = len(lost)
        for arrival in lost:
            self._submit(arrival)

    def _figures(self, first: int, loads_before: int) -> dict[str, float]:
        counted = [each for each in self.served if each.arrival.number >= first]
        waits = np.array([each.first_token - each.arrival.at for each in counted])
        ranks = np.array([each.arrival.rank for each in counted])
        cold = waits[ranks >= _COLDEST * self._workload.adapters]
        by_engine = Counter(each.engine for each in counted)
        seconds = max(each.end for each in counted) - min(each.arrival.at for each in counted)
        return {
            "loads_per_request": round((self.loads - loads_before) / len(counted), 3),
            "first_token_ms_p50": _milliseconds(waits, 0.5),
            "first_token_ms_p99": _milliseconds(waits, 0.99),
            "first_token_ms_p99_of_coldest_decile": _milliseconds(cold, 0.99),
            "most_over_mean_requests_of_an_engine": round(max(by_engine.values()) / len(counted) * len(by_engine), 2),
            "tokens_per_second": round(sum(each.arrival.new_tokens for each in counted) / seconds, 1),
        }


def moved(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> float:
    """Return the part of the (adapter, engine) pairs of `after` that are not in `before`."""
    pairs = {(adapter, engine) for adapter, engines in after.items() for engine in engines}
    old = {(adapter, engine) for adapter, engines in before.items() for engine in engines}
    return len(pairs - old) / len(pairs)


def _milliseconds(seconds: "np.ndarray[tuple[int], np.dtype[np.float64]]", quantile: float) -> float:
    return round(float(np.quantile(seconds, quantile)) * 1000, 1) if len(seconds) else float("nan")
