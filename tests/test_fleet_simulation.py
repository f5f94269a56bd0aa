"""The simulation of a fleet, in small: no request is lost, and placement does what it is for."""

import pytest

from benchmarks.fleet.policies import LeastLoaded, Policy, ReplicaSets, belady_loads, best_static_loads
from benchmarks.fleet.simulation import Fleet, Simulation, moved
from benchmarks.fleet.workload import Workload

REQUESTS = 250
WORKLOAD = Workload(adapters=60, skew=1.0, rate=24.0)


def simulate(policy: Policy, **fleet: object) -> Simulation:
    simulation = Simulation(Fleet(3, slots=4, **fleet), WORKLOAD, policy)  # type: ignore[arg-type]
    simulation.run(REQUESTS)
    return simulation


@pytest.mark.long
def test_replica_sets_need_few_loads_and_wait_little() -> None:
    workload = Workload(adapters=300, skew=1.0, rate=24.0)
    ours = Simulation(Fleet(3), workload, ReplicaSets()).run(8000)
    least_loaded = Simulation(Fleet(3, evict_least_recent=True), workload, LeastLoaded()).run(8000)
    ranks = [arrival.rank for arrival in workload.arrivals(8000)][2000:]
    assert ours["loads_per_request"] <= 1.25 * best_static_loads(ranks, 3 * 16)
    assert ours["loads_per_request"] <= 0.6 * least_loaded["loads_per_request"]
    assert ours["first_token_ms_p99_of_coldest_decile"] <= 2 * ours["first_token_ms_p99"]


def test_every_request_is_served_once_when_an_engine_dies() -> None:
    simulation = simulate(ReplicaSets(), killed_at=5.0)
    assert simulation.retried > 0
    assert sorted(each.arrival.number for each in simulation.served) == list(range(REQUESTS))
    assert {each.engine for each in simulation.served if each.arrival.at > 5.0} == {"engine-1", "engine-2"}


def test_a_new_engine_gets_work_and_one_that_leaves_ends_its_own() -> None:
    simulation = simulate(ReplicaSets(), resized=((3.0, 4), (7.0, 3)))
    new = [each for each in simulation.served if each.engine == "engine-3"]
    assert new
    assert all(3.0 <= each.arrival.at < 7.0 for each in new)


def test_bounds() -> None:
    assert best_static_loads([0, 0, 1, 0, 2, 1], slots=2) == pytest.approx(1 / 6)
    assert belady_loads([0, 1, 2, 0, 1, 2], slots=2) == pytest.approx(4 / 6)  # 0, 1, 2 for 1, 1


def test_moved_pairs() -> None:
    assert moved({"a": {"x"}, "b": {"y"}}, {"a": {"x", "z"}, "b": {"z"}}) == pytest.approx(2 / 3)
