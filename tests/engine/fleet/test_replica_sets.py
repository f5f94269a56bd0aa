import pytest

from loragate.engine.fleet.rendezvous import ranked
from loragate.engine.fleet.replica_sets import MAX_QUEUE_SECONDS, SHRINK_SECONDS, Demand, SetSize, resize

ENGINES = {"a": 16.0, "b": 16.0, "c": 16.0, "d": 16.0}


@pytest.mark.parametrize(("share", "engines"), [(0.0, 1), (0.06, 1), (0.0626, 2), (0.2, 4), (0.9, 4)])
def test_a_set_has_an_engine_for_each_quarter_of_an_engines_work(share: float, engines: int) -> None:
    assert resize(SetSize(), Demand(share), 4, now=0.0).engines == engines


def test_a_set_grows_by_one_while_its_requests_wait() -> None:
    size = resize(SetSize(), Demand(0.01, queue_seconds=2 * MAX_QUEUE_SECONDS), 4, now=10.0)
    assert size.engines == 2
    assert resize(size, Demand(0.01, 2 * MAX_QUEUE_SECONDS), 4, now=10.5).engines == 2  # the new member needs a moment
    assert resize(size, Demand(0.01, 2 * MAX_QUEUE_SECONDS), 4, now=12.0).engines == 3


def test_a_set_shrinks_slowly_one_at_a_time() -> None:
    size = SetSize(3)
    for now, engines in ((0.0, 3), (SHRINK_SECONDS - 1, 3), (SHRINK_SECONDS, 2), (2 * SHRINK_SECONDS, 1)):
        size = resize(size, Demand(0.01), 4, now)
        assert size.engines == engines
    assert resize(size, Demand(0.01), 4, 9 * SHRINK_SECONDS).engines == 1


def test_a_demand_that_returns_keeps_the_set() -> None:
    size = resize(SetSize(2), Demand(0.01), 4, now=0.0)
    size = resize(size, Demand(0.08), 4, now=SHRINK_SECONDS - 1)
    assert resize(size, Demand(0.01), 4, now=SHRINK_SECONDS + 1).engines == 2


def test_a_demand_between_the_bounds_changes_nothing() -> None:
    """One that swings around a bound would else move an adapter back and forth."""
    size = SetSize(2)
    for step in range(20):
        size = resize(size, Demand(0.0625 * (0.7 if step % 2 else 1.9)), 4, now=step * SHRINK_SECONDS)
        assert size.engines == 2


def test_a_set_is_no_larger_than_the_fleet() -> None:
    assert resize(SetSize(4), Demand(0.5), 2, now=0.0).engines == 2
    assert resize(SetSize(2), Demand(0.5, queue_seconds=60), 2, now=9.0).engines == 2


def test_a_set_that_grows_keeps_its_members() -> None:
    for number in range(50):
        assert ranked(f"adapter-{number}", ENGINES)[:3][:2] == ranked(f"adapter-{number}", ENGINES)[:2]


def test_the_set_after_an_engine_came_and_went_is_the_first_one() -> None:
    fewer = {name: weight for name, weight in ENGINES.items() if name != "d"}
    for number in range(50):
        before = ranked(f"adapter-{number}", fewer)[:2]
        grown = ranked(f"adapter-{number}", ENGINES)[:2]
        assert set(grown) - set(before) <= {"d"}
        assert ranked(f"adapter-{number}", fewer)[:2] == before
