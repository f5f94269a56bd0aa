"""Placement: the least loaded engine, the same one for like requests, and replica sets that follow the demand."""

import pytest

from loragate.engine.fleet.placement import NEAR_REQUESTS, AdapterId, Candidate, Placement, choose
from loragate.engine.fleet.rendezvous import ranked
from loragate.engine.fleet.replica_sets import MAX_QUEUE_SECONDS, SHRINK_SECONDS

KEYS = [f"tenant/{number}" for number in range(300)]
HOT: AdapterId = ("tenant", "hot")
COLD = [("tenant", f"cold-{number}") for number in range(60)]


def idle(*ids: str) -> list[Candidate]:
    return [Candidate(each, 0.0, 0) for each in ids]


class Bytes:
    """The adapters that engines hold. Fetching takes until `arrive`."""

    def __init__(self) -> None:
        self.held: set[tuple[str, AdapterId]] = set()
        self.fetching: set[tuple[str, AdapterId]] = set()

    def holds(self, engine_id: str, adapter: AdapterId) -> bool:
        return (engine_id, adapter) in self.held

    def fetch(self, engine_id: str, adapter: AdapterId) -> None:
        if not self.holds(engine_id, adapter):
            self.fetching.add((engine_id, adapter))

    def arrive(self) -> None:
        self.held |= self.fetching
        self.fetching.clear()


@pytest.fixture
def placed_bytes() -> Bytes:
    return Bytes()


@pytest.fixture
def placement(placed_bytes: Bytes) -> Placement:
    return Placement(placed_bytes)


def test_without_engines_there_is_no_choice(placement: Placement) -> None:
    assert choose([], "key") is None
    assert placement.place(HOT, "", [], 0.0) is None


def test_the_shortest_queue_decides_first() -> None:
    assert choose([Candidate("a", 2.0, 0), Candidate("b", 1.0, 50), Candidate("c", 3.0, 1)], "key") == "b"


def test_then_the_fewest_requests() -> None:
    many = 1 + NEAR_REQUESTS
    assert choose([Candidate("a", 0.0, 2 + many), Candidate("b", 0.0, 2), Candidate("c", 0.0, 2 + many)], "key") == "b"


def test_about_equal_engines_share_the_keys_evenly_and_each_key_keeps_its_engine() -> None:
    chosen = [choose(idle("a", "b", "c"), key) for key in KEYS]
    assert chosen == [choose([Candidate("c", 0.0, 1), *idle("a", "b")], key) for key in KEYS]
    assert all(70 <= chosen.count(each) <= 130 for each in "abc")


def test_an_engine_that_leaves_moves_only_its_own_adapters() -> None:
    for key in KEYS:
        before, after = choose(idle("a", "b", "c"), key), choose(idle("a", "b"), key)
        assert after == before or before == "c"


def test_an_adapter_stays_on_its_engine_while_others_have_less_to_do(placement: Placement) -> None:
    for adapter in COLD:
        placement.record(adapter, 1.0, 0.0)
    for adapter in COLD:
        own, *_ = ranked("/".join(adapter), dict.fromkeys("abc", 1.0))
        busy = [Candidate(each, 0.0, 40 if each == own else 0) for each in "abc"]
        assert placement.place(adapter, "", busy, 0.0) == own


def test_prompts_that_begin_alike_go_to_one_engine_of_the_set(placement: Placement, placed_bytes: Bytes) -> None:
    placement.record(HOT, 1.0, 0.0)
    placement.place(HOT, "", idle("a", "b", "c"), 0.0)
    placed_bytes.held = {(each, HOT) for each in "abc"}
    by_prefix = [{placement.place(HOT, str(n), idle("a", "b", "c"), 0.0) for _ in range(3)} for n in range(60)]
    assert all(len(each) == 1 for each in by_prefix)
    assert set.union(*by_prefix) == {"a", "b", "c"}


def test_the_base_model_is_everywhere(placement: Placement) -> None:
    assert {placement.place(None, str(n), idle("a", "b", "c"), 0.0) for n in range(60)} == {"a", "b", "c"}


def test_a_new_member_gets_requests_once_it_has_the_bytes(placement: Placement, placed_bytes: Bytes) -> None:
    first = placement.place(HOT, "", idle("a", "b"), 0.0)
    assert first is not None
    other = "ab".replace(first, "")
    placed_bytes.held = {(first, HOT)}
    placement.record(HOT, 1.0, 0.0)  # all of the demand
    busy = [Candidate(first, 0.0, 9), *idle(other)]
    assert placement.place(HOT, "", busy, 0.0) == first
    assert placed_bytes.fetching == {(other, HOT)}
    placed_bytes.arrive()
    assert placement.place(HOT, "", busy, 0.0) == other


def test_an_engine_that_joins_gets_its_adapters_once_it_has_their_bytes(
    placement: Placement, placed_bytes: Bytes
) -> None:
    before = {adapter: placement.place(adapter, "", idle("a", "b"), 0.0) for adapter in COLD}
    placed_bytes.held = {(engine, adapter) for adapter, engine in before.items() if engine is not None}
    for adapter in COLD:
        placement.record(adapter, 1.0, 0.0)
    assert {adapter: placement.place(adapter, "", idle("a", "b", "c"), 0.0) for adapter in COLD} == before
    moving = {adapter for engine, adapter in placed_bytes.fetching if engine == "c"}
    assert 10 <= len(moving) <= 30
    placed_bytes.arrive()
    after = {adapter: placement.place(adapter, "", idle("a", "b", "c"), 0.0) for adapter in COLD}
    assert after == before | dict.fromkeys(moving, "c")


def test_a_set_grows_with_its_queue_and_shrinks_slowly(placement: Placement) -> None:
    placement.record(HOT, 1.0, 0.0)
    for adapter in COLD:
        placement.record(adapter, 1.0, 0.0)
    waiting = [Candidate(each, 2 * MAX_QUEUE_SECONDS, 20) for each in "abc"]
    placement.place(HOT, "", waiting, 10.0)
    assert placement.large_sets(3, 10.0) == {HOT: 2}
    assert placement.large_sets(3, 10.0 + SHRINK_SECONDS - 1) == {HOT: 2}
    assert placement.large_sets(3, 10.0 + SHRINK_SECONDS + 1) == {}


def test_sizes_that_others_need_count_while_they_say_so(placement: Placement) -> None:
    placement.use_sizes_of_others({HOT: 3})
    assert placement.size(HOT) == 3
    assert placement.large_sets(3, 0.0) == {}, "what others need is theirs to say"
    placement.use_sizes_of_others({})
    assert placement.size(HOT) == 1
