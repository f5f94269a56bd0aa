"""The one function that chooses an engine."""

from loragate.engine.fleet.placement import Candidate, choose

KEYS = [f"tenant/{number}" for number in range(300)]


def idle(*ids: str) -> list[Candidate]:
    return [Candidate(each, 0.0, 0) for each in ids]


def test_without_engines_there_is_no_choice() -> None:
    assert choose([], "key") is None


def test_the_shortest_queue_decides_first() -> None:
    assert choose([Candidate("a", 2.0, 0), Candidate("b", 1.0, 50), Candidate("c", 3.0, 1)], "key") == "b"


def test_then_the_fewest_requests() -> None:
    assert choose([Candidate("a", 0.0, 3), Candidate("b", 0.0, 2), Candidate("c", 0.0, 3)], "key") == "b"


def test_equal_engines_share_the_adapters_evenly_and_each_adapter_keeps_its_engine() -> None:
    chosen = [choose(idle("a", "b", "c"), key) for key in KEYS]
    assert chosen == [choose(idle("c", "a", "b"), key) for key in KEYS]
    assert all(70 <= chosen.count(each) <= 130 for each in "abc")


def test_an_engine_that_leaves_moves_only_its_own_adapters() -> None:
    for key in KEYS:
        before, after = choose(idle("a", "b", "c"), key), choose(idle("a", "b"), key)
        assert after == before or before == "c"
