"""Fairness between tenants, counted in steps and tokens."""

import pytest
from stepping import Stepping

from loragate.engine.scheduling.seat_allocator import RESERVATION_STEPS
from loragate.engine.scheduling.slot_assignment import OVERTAKE_STEPS


def flood(engine: Stepping, requests: int = 64, prompt: int = 40, new: int = 400, adapters: int = 0) -> None:
    for i in range(requests):
        engine.submit("flood", prompt, new, adapter=f"a{i % adapters}" if adapters else None)


@pytest.mark.parametrize(
    "scarce",
    [
        {"seats": 8},
        {"seats": 64, "blocks": 200},
        {"seats": 1},
        {"seats": 64, "tokens": 64},
    ],
    ids=["seats", "blocks", "one seat", "tokens"],
)
def test_a_new_request_does_not_wait_for_a_long_one(scarce: dict[str, int]) -> None:
    """The flood fills the batch before any other tenant arrives; each of its requests takes at least 400 steps."""
    engine = Stepping(**scarce)
    flood(engine)
    engine.run(100)
    (new_request,) = engine.submit("guest", prompt=16, new=8)
    first = engine.until_first_token(new_request, at_most=130)
    assert engine.until(new_request, at_most=24) + first < 150
    assert not engine.finished or new_request is next(iter(engine.finished))


def test_a_new_request_does_not_wait_for_a_floods_prompts() -> None:
    """64 prompts of 2,000 tokens take 2,000 steps of 64."""
    engine = Stepping(seats=64, blocks=64 * 300)
    flood(engine, prompt=2000)
    engine.run(10)
    (new_request,) = engine.submit("guest", prompt=100, new=4)
    assert engine.until_first_token(new_request) <= 6


def test_a_new_request_does_not_wait_for_a_slot() -> None:
    engine = Stepping(seats=16, slots=4)
    flood(engine, adapters=10)
    engine.run(100)
    (new_request,) = engine.submit("guest", prompt=16, new=8, adapter="mine")
    assert engine.until_first_token(new_request) < 60


def test_one_request_at_a_time_keeps_its_speed() -> None:
    engine = Stepping(seats=16, slots=10)
    flood(engine, adapters=10)
    engine.run(50)
    waits = []
    for _ in range(12):
        (request,) = engine.submit("guest", prompt=16, new=16)
        waits.append(engine.until(request))
    assert max(waits) < 50


def test_a_flood_loses_little_more_than_a_neighbours_tokens() -> None:
    """Preemption costs recomputation. A tenant that returns at once keeps its seat."""
    engine = Stepping(seats=16)
    flood(engine, requests=32, new=200)
    guests = []
    while len(engine.finished) < 32 + len(guests):
        guests += engine.submit("guest", prompt=16, new=32)
        engine.until(guests[-1])
    useful = sum(len(sequence.tokens) - 1 for sequence in engine.finished)
    assert len(guests) > 8
    assert 1 <= engine.scheduler.preemptions <= 3
    assert engine.computed < 1.05 * useful


def test_a_reserved_seat_expires_soon() -> None:
    engine = Stepping(seats=16)
    flood(engine)
    engine.run(50)
    engine.until(*engine.submit("guest", prompt=16, new=16))
    assert len(engine.step()) == 15
    engine.run(RESERVATION_STEPS)
    assert len(engine.step()) == 16


def test_a_reserved_seat_does_not_block_the_only_one() -> None:
    engine = Stepping(seats=1)
    flood(engine, requests=2, new=1000)
    engine.run(10)
    for _ in range(100):
        engine.until(*engine.submit("guest", prompt=16, new=16))
    assert engine.produced["flood"] > 0.5 * engine.produced["guest"]


def test_two_floods_share_without_thrashing() -> None:
    """The second one takes half of the seats, once; after that neither preempts the other."""
    engine = Stepping(seats=16)
    flood(engine)
    engine.run(100)
    for _ in range(64):
        engine.submit("second", prompt=40, new=400)
    engine.run(100)
    settled = engine.scheduler.preemptions
    assert settled == 8
    before = dict(engine.produced)
    engine.run(200)
    assert engine.scheduler.preemptions == settled
    gained = {tenant: engine.produced[tenant] - before.get(tenant, 0) for tenant in engine.produced}
    assert gained["second"] == pytest.approx(gained["flood"], rel=0.05)


def test_two_tenants_alternate_on_the_only_seat() -> None:
    engine = Stepping(seats=1, tokens=64)
    engine.submit("a", prompt=8, new=2000)
    engine.submit("b", prompt=8, new=2000)
    engine.run(2000)
    assert engine.produced["a"] == pytest.approx(engine.produced["b"], rel=0.35)
    assert 2 <= engine.scheduler.preemptions < 20


@pytest.mark.parametrize("adapter", [None, "x"])
def test_weights_divide_the_tokens(adapter: str | None) -> None:
    engine = Stepping(seats=8, slots=2)
    for _ in range(300):
        engine.submit("three", prompt=8, new=24, adapter=adapter, weight=3.0)
        engine.submit("one", prompt=8, new=24, adapter=adapter, weight=1.0)
    engine.run(600)
    assert engine.scheduler.waiting, "both were to want more than there is, all along"
    assert engine.produced["three"] / engine.produced["one"] == pytest.approx(3, rel=0.1)


def test_tokens_of_a_costlier_adapter_count_for_more() -> None:
    """Both tenants generate; one's adapter costs twice as much a token, so it gets half as many."""
    engine = Stepping(seats=8, slots=2, token_cost=2.0)
    for _ in range(300):
        engine.submit("dear", prompt=8, new=24, adapter="x")
        engine.submit("cheap", prompt=8, new=24)
    engine.run(600)
    assert engine.produced["cheap"] / engine.produced["dear"] == pytest.approx(2, rel=0.1)


def test_idleness_earns_no_credit() -> None:
    """A tenant that returns after 500 idle steps gets its share from then on, without compensation."""
    engine = Stepping(seats=8)
    engine.until(*engine.submit("idler", new=4))
    flood(engine, requests=200, prompt=8, new=24)
    engine.run(500)
    before = engine.produced["flood"]
    for _ in range(200):
        engine.submit("idler", prompt=8, new=24)
    engine.run(200)
    assert engine.produced["flood"] - before == pytest.approx(engine.produced["idler"], rel=0.15)


def test_leaving_and_returning_does_not_clear_a_debt() -> None:
    """A tenant served alone is ahead of one that was present all along, and stays so after a short absence."""
    engine = Stepping(seats=8)
    (_steady,) = engine.submit("steady", prompt=8, new=1000)
    engine.until(*[s for _ in range(7) for s in engine.submit("greedy", prompt=8, new=100)])
    counters = engine.scheduler._counters.interactive
    owed = counters.find("greedy").counter
    engine.run(3)
    engine.submit("greedy")
    assert counters.find("greedy").counter == owed > counters.find("steady").counter


def test_counters_of_absent_tenants_are_discarded() -> None:
    engine = Stepping()
    for i in range(500):
        engine.until(*engine.submit(f"tenant {i}", new=2))
    assert len(engine.scheduler._counters.interactive) < 5


def test_recomputed_tokens_are_charged_once() -> None:
    """A preempted request is charged for its prompt and its tokens, even if they were computed twice."""
    engine = Stepping(seats=4, blocks=24)
    sequences = [engine.submit("t", prompt=24, new=40)[0] for _ in range(4)]
    (other,) = engine.submit("other", prompt=8, new=500 - 320)
    account = engine.scheduler._scheduled[sequences[0]].tenant
    engine.until(*sequences)
    assert engine.scheduler.preemptions > 0
    assert account.counter == 4 * (24 + 2 * 40)
    engine.until(other)
    assert engine.at_rest()


def test_the_tenant_furthest_ahead_is_preempted_when_blocks_run_out() -> None:
    engine = Stepping(seats=8, blocks=40)
    for _ in range(4):
        engine.submit("ahead", prompt=24, new=200)
    engine.run(20)
    late = engine.submit("behind", prompt=24, new=60)[0]
    preempted: list[str] = []
    scheduler = engine.scheduler
    original = scheduler.seats.preempt
    scheduler.seats.preempt = lambda t: (preempted.append(t.tenant.tenant_id), original(t))  # type: ignore[method-assign]
    engine.until(late)
    assert preempted
    assert set(preempted) == {"ahead"}


def test_priorities_count_within_a_tenant_only() -> None:
    engine = Stepping(seats=1)
    engine.submit("t", new=4)
    engine.step()
    low = engine.submit("t", new=4, priority=-1)[0]
    middle = engine.submit("t", new=4)[0]
    high = engine.submit("t", new=4, priority=5)[0]
    other = engine.submit("u", new=4)[0]
    engine.until(low, middle, high, other)
    mine = [sequence for sequence in engine.finished if sequence in (low, middle, high)]
    assert mine == [high, middle, low]
    assert engine.finished[other] < engine.finished[middle], "priority buys nothing against others"


def test_all_of_n_are_charged_and_counted() -> None:
    engine = Stepping()
    sequences = engine.submit("t", prompt=16, new=4, n=3)
    account = engine.scheduler._scheduled[sequences[0]].tenant
    assert account.waiting == 3
    engine.until(*sequences)
    assert account.counter == 3 * (16 + 2 * 4)
    assert engine.at_rest()


def test_no_seat_is_idle_while_requests_wait() -> None:
    """Scheduling is work-conserving: a lone tenant gets all seats, however much it was served."""
    engine = Stepping(seats=8)
    flood(engine, requests=48, prompt=8, new=10)
    while engine.scheduler.waiting:
        assert len(engine.step()) == 8


def test_a_resident_adapter_overtakes_for_a_bounded_time() -> None:
    """One tenant sends A, B, A, A, … with one slot: B is not starved, and neither is A afterwards."""
    engine = Stepping(seats=2, slots=1)
    engine.submit("t", new=10, adapter="a")
    engine.step()
    b = engine.submit("t", new=10, adapter="b")[0]
    rest = [engine.submit("t", new=10, adapter="a")[0] for _ in range(100)]
    assert engine.until(b) <= OVERTAKE_STEPS + 2 * 12 + 10
    engine.until(*rest)
    assert engine.at_rest()


def test_an_adapter_that_cannot_load_does_not_block_others_forever() -> None:
    """If its memory is fragmented, others wait while it may still load, and continue when it cannot."""
    engine = Stepping(seats=1, slots=1)
    want = engine.adapters.request

    def scattered(key, sequence, *, overdue):  # type: ignore[no-untyped-def]
        read = engine.adapters.host.get(key) is not None
        return not (key.digest == "scattered" and read) and want(key, sequence, overdue=overdue)

    engine.adapters.request = scattered  # type: ignore[method-assign]
    engine.submit("t", new=2 * OVERTAKE_STEPS, adapter="a")
    engine.run(3)
    (hopeless,) = engine.submit("t", adapter="scattered")
    others = [engine.submit("t", adapter="a")[0] for _ in range(3)]
    engine.until(*others, at_most=200)
    engine.scheduler.remove(hopeless)
    assert engine.at_rest()


def test_thousands_of_adapters_each_run() -> None:
    """They run roughly in order of arrival, and a step does not examine each of them."""
    engine = Stepping(seats=8, slots=8)
    sequences = [engine.submit("t", prompt=4, new=4, adapter=f"a{i}")[0] for i in range(2000)]
    looked = 0
    want = engine.adapters.request

    def counting(*arguments, **options):  # type: ignore[no-untyped-def]
        nonlocal looked
        looked += 1
        return want(*arguments, **options)

    engine.adapters.request = counting  # type: ignore[method-assign]
    steps = engine.until(*sequences)
    places = {sequence: place for place, sequence in enumerate(engine.finished)}
    assert max(abs(places[sequence] - i) for i, sequence in enumerate(sequences)) < 80
    assert looked < 12 * steps
    assert engine.at_rest()


@pytest.mark.parametrize("host_bytes", [0, 1 << 20])
def test_many_tenants_wait_for_few_slots(host_bytes: int) -> None:
    engine = Stepping(seats=8, slots=4, host_bytes=host_bytes)
    sequences = [engine.submit(f"t{i % 100}", prompt=4, new=6, adapter=f"a{i}")[0] for i in range(400)]
    engine.until(*sequences)
    assert engine.at_rest()


def test_a_loading_adapter_blocks_no_other() -> None:
    engine = Stepping(load_steps=1000)
    engine.submit("t", adapter="slow")
    others = [engine.submit("t")[0] for _ in range(3)]
    assert engine.until(*others) < 12


def test_the_longest_queues_are_reported_first() -> None:
    engine = Stepping(seats=2)
    engine.submit("a", n=3)
    engine.step()
    engine.submit("c")
    engine.submit("b", n=2)
    reported = [(each.tenant_id, each.seated, each.waiting) for each in engine.scheduler.tenants()]
    assert reported == [("b", 0, 2), ("a", 2, 1), ("c", 0, 1)]
