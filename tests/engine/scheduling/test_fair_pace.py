"""How much a tenant with many sequences slows a tenant with one down: the rows of steps that they share."""

from statistics import mean

import pytest
from stepping import Stepping

from loragate.engine.scheduling.fair_pace import FairPace
from loragate.engine.scheduling.scheduler import Limits
from loragate.engine.sequence.sequence import Sequence

ALONE = 0.005  # seconds of a step with one row


def seconds(engine: Stepping) -> float:
    """Return the duration of the last step on a CPU: 5 ms for one row, 0.2 ms for a further one or a prompt token."""
    work = engine.scheduler.work
    return ALONE + 0.0002 * (work.decoding + work.prefill - 1)


def timed_step(engine: Stepping) -> tuple[dict[Sequence, int], float]:
    rows = engine.step()
    took = seconds(engine)
    engine.scheduler.record_step(engine.scheduler.work, took)
    return rows, took


def start(max_slowdown: float | None, seats: int = 64) -> Stepping:
    return Stepping(limits=Limits(512, seats, 1 << 20, 0.1, max_slowdown), blocks=20_000)


def guest_steps(engine: Stepping, count: int, new: int = 32) -> list[float]:
    """Run the guest's requests one after the other, and return the durations of the steps until the end of each."""
    durations = []
    for _ in range(count):
        (guest,) = engine.submit("guest", prompt=32, new=new)
        took = 0.0
        while guest not in engine.finished:
            took += timed_step(engine)[1]
        durations.append(took)
    return durations


@pytest.mark.parametrize("known", [True, False], ids=["a guest before the flood", "a flood at first"])
def test_a_flood_slows_a_guest_by_the_bound_at_most(known: bool) -> None:
    engine = start(max_slowdown=2.5)
    if known:
        guest_steps(engine, 3)
    for _ in range(64):
        engine.submit("flood", prompt=64, new=2000)
    for _ in range(1 if known else 40):
        timed_step(engine)
    during = guest_steps(engine, 20)
    assert max(during[1:]) < 2.9 * 32 * ALONE
    assert mean(during[5:]) > 2.0 * 32 * ALONE, "the flood gets what the bound leaves"


def test_without_a_bound_all_rows_are_computed() -> None:
    engine = start(max_slowdown=None)
    guest_steps(engine, 3)
    for _ in range(64):
        engine.submit("flood", prompt=64, new=2000)
    assert max(guest_steps(engine, 20)) > 3.3 * 32 * ALONE


def test_a_tenant_alone_decodes_with_all_rows() -> None:
    engine = start(max_slowdown=1.5)
    guest_steps(engine, 3)
    for _ in range(64):
        engine.submit("flood", prompt=8, new=100)
    for _ in range(20):
        timed_step(engine)
    assert all(len(timed_step(engine)[0]) == 64 for _ in range(20))


def test_sequences_that_waited_decode_next() -> None:
    """None of a flood's streams stands still while the guest is there."""
    engine = start(max_slowdown=2.0)
    guest_steps(engine, 2)
    flood = [engine.submit("flood", prompt=8, new=5000)[0] for _ in range(60)]
    engine.submit("guest", prompt=8, new=5000)
    for _ in range(60):
        timed_step(engine)
    last_row = dict.fromkeys(flood, 0)
    gaps = dict.fromkeys(flood, 0)
    for number in range(1, 200):
        for sequence in timed_step(engine)[0]:
            if sequence in last_row:
                gaps[sequence] = max(gaps[sequence], number - last_row[sequence])
                last_row[sequence] = number
    assert min(last_row.values()) > 190
    assert max(gaps.values()) <= 4, "about every third step, as 26 of 61 rows fit"


def test_a_stream_of_prompts_does_not_stop_a_flood() -> None:
    """Steps without prefill, by which durations are measured again, do not occur then."""
    engine = start(max_slowdown=2.5)
    guest_steps(engine, 3)
    flood = [engine.submit("flood", prompt=8, new=5000)[0] for _ in range(40)]
    guest_steps(engine, 5)
    engine.submit("guest", prompt=20_000, new=1)
    generated = sum(sequence.generated for sequence in flood)
    assert all(engine.scheduler.work.prefill for _ in range(200) if timed_step(engine))
    assert sum(sequence.generated for sequence in flood) - generated > 200 * 10


def test_higher_priorities_of_a_tenant_decode_first() -> None:
    engine = start(max_slowdown=1.5)
    guest_steps(engine, 3)
    flood = [engine.submit("flood", prompt=8, new=5000, priority=number % 2)[0] for number in range(40)]
    engine.submit("guest", prompt=8, new=5000)
    for _ in range(100):
        timed_step(engine)
    urgent = {sequence for sequence in flood if sequence.request.share.priority}
    assert min(s.generated for s in urgent) > 2 * max(s.generated for s in flood if s not in urgent)


def test_every_tenant_has_a_row_in_each_step() -> None:
    engine = start(max_slowdown=1.0)
    guest_steps(engine, 2)
    tenants = [engine.submit(f"t{number}", prompt=8, new=5000)[0] for number in range(20)]
    more = [engine.submit("t0", prompt=8, new=5000)[0] for _ in range(20)]
    for _ in range(100):
        timed_step(engine)
    for _ in range(50):
        rows, _ = timed_step(engine)
        assert set(rows) >= set(tenants[1:])
        assert len(set(rows) & {tenants[0], *more}) == 1


def test_a_step_that_takes_long_once_changes_little() -> None:
    """The first step of each size compiles its products."""
    pace = FairPace(2.5)
    for _ in range(20):
        pace.observe(1, ALONE)
        pace.observe(60, 4 * ALONE)
    before = pace.seconds_for_prefill(1)
    pace.observe(1, 100 * ALONE)
    after = pace.seconds_for_prefill(1)
    assert before == pytest.approx(1.5 * ALONE)
    assert after == pytest.approx(before, rel=0.25)
