"""How many threads steps are computed with: decisions on simulated contention, and a real team with its counters."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from loragate.engine.runtime import contention, control_groups, thread_governor
from loragate.engine.runtime.contention import Contention, ContentionMeter
from loragate.engine.runtime.thread_governor import ThreadGovernor, ThreadPolicy, most_threads
from loragate.kernels.cpu.openmp import compute_with

READING = 0.15  # seconds between two decisions

World = Callable[[float, int], Contention]
"""Returns what a team of so many threads meets at a time."""


def beside(neighbours: int, cores: int, begin: float = 0.0, end: float = float("inf")) -> World:
    """Return a machine with processes that compute for ever between two times."""

    def world(now: float, threads: int) -> Contention:
        busy = neighbours if begin <= now < end else 0
        return Contention(delay=0.9 * max(0, threads + busy - cores), free=max(0.0, cores - threads - busy))

    return world


def simulate(policy: ThreadPolicy, world: World, seconds: float) -> list[int]:
    """Return the number of threads after each decision."""
    return [
        policy.decide(number * READING, world(number * READING, policy.threads))
        for number in range(round(seconds / READING))
    ]


def changes(threads: list[int]) -> int:
    return sum(a != b for a, b in pairwise(threads))


def test_a_quiet_machine_computes_with_all_threads() -> None:
    assert set(simulate(ThreadPolicy(4), beside(0, cores=4), 60)) == {4}


def test_a_busy_neighbour_gets_its_processor_at_once_and_for_good() -> None:
    threads = simulate(ThreadPolicy(2), beside(1, cores=2, begin=1), 50)
    first = threads.index(1)
    assert first * READING <= 1 + READING
    assert set(threads[first:]) == {1}


@pytest.mark.parametrize(("neighbours", "left"), [(1, 15), (3, 13), (15, 1), (40, 1)])
def test_a_team_shrinks_to_the_processors_that_are_left(neighbours: int, left: int) -> None:
    threads = simulate(ThreadPolicy(16), beside(neighbours, cores=16), 5)
    assert threads[-1] == left
    assert changes(threads) <= 4, "it takes few steps"


def test_threads_come_back_when_the_neighbour_ends() -> None:
    threads = simulate(ThreadPolicy(8), beside(5, cores=8, begin=1, end=5), 6)
    assert min(threads) == 3
    assert threads[-1] == 8


def test_one_reading_with_a_delay_costs_half_a_second() -> None:
    policy = ThreadPolicy(2)
    threads = simulate(policy, beside(1, cores=2, begin=1, end=1 + READING), 3)
    assert threads.count(1) * READING <= policy.pause + 2 * READING
    assert threads[-1] == 2


def test_small_delays_change_nothing() -> None:
    """The gateway, and threads that end a step late, take a processor for a moment."""
    for threads in (2, 8, 64):
        policy = ThreadPolicy(threads)
        assert set(simulate(policy, lambda now, n: Contention(delay=0.5 / n, free=0), 20)) == {threads}


def test_a_processor_that_is_partly_free_is_left_to_others() -> None:
    policy = ThreadPolicy(2)
    assert policy.decide(0, Contention(1, 0)) == 1
    assert set(simulate(policy, lambda now, n: Contention(0, 0.4), 50)) == {1}


def test_a_team_that_waits_for_processors_takes_none_that_seem_free() -> None:
    """As beside nice processes of other sessions, which do not yield."""
    policy = ThreadPolicy(2)
    assert policy.decide(0, Contention(1, 0)) == 1
    assert set(simulate(policy, lambda now, n: Contention(delay=0.75, free=1.2), 300)) == {1}


def test_processors_that_only_seem_free_are_tried_ever_less_often() -> None:
    """As in a container that sees its host's processors, or beside a nice process of another session."""
    threads = simulate(ThreadPolicy(2), lambda now, n: Contention(delay=float(n - 1), free=1.0), 600)
    tries = [place * READING for place, (a, b) in enumerate(pairwise(threads)) if a < b]
    assert 5 <= len(tries) <= 16
    assert min(b - a for a, b in pairwise(tries[-5:])) > 30
    assert threads.count(2) <= 2 * len(tries), "each try ends at the next reading"


def test_a_rise_that_lasts_ends_the_caution() -> None:
    policy = ThreadPolicy(2)
    simulate(policy, lambda now, n: Contention(delay=float(n - 1), free=1.0), 100)
    for now in (200.0, 300.0):
        assert policy.decide(now, Contention(0, 1.0)) == 2
    assert policy.decide(400, Contention(1, 0)) == 1
    assert policy.decide(400 + policy.pause, Contention(0, 1.0)) == 2


def test_without_free_processors_a_thread_is_tried_after_a_minute() -> None:
    """Counters may show none, though there are: the number would stay low for ever."""
    policy = ThreadPolicy(4)
    assert policy.decide(0, Contention(4, 0)) == 1
    assert policy.decide(policy.blind - 1, Contention(0, 0)) == 1
    assert policy.decide(policy.blind + 1, Contention(0, 0)) == 2


@pytest.fixture
def two_threads() -> None:
    before = torch.get_num_threads()
    compute_with(2)
    yield
    compute_with(before)


class FakeProc:
    """Counters of threads and processors as in /proc, in files."""

    def __init__(self, root: Path, ids: list[int], processors: int) -> None:
        self._root, self._processors = root, processors
        for each in ids:
            (root / "self" / "task" / str(each)).mkdir(parents=True)
        self.write(dict.fromkeys(ids, 0.0), free=0.0)

    def write(self, delays: dict[int, float], free: float, nice: float = 0.0) -> None:
        """Set the seconds that threads waited, and those in which each processor was idle or ran nice processes."""
        for each, delay in delays.items():
            (self._root / "self" / "task" / str(each) / "schedstat").write_text(f"77 {int(delay * 1e9)} 5\n")
        ticks, nice_ticks = round(free * os.sysconf("SC_CLK_TCK")), round(nice * os.sysconf("SC_CLK_TCK"))
        rows = [f"cpu{n} 900 {nice_ticks} 80 {ticks} 0 0 0 0 0 0" for n in range(self._processors)]
        (self._root / "stat").write_text("\n".join([f"cpu 9 9 9 {99 * ticks} 9 9 9 9 9 9", *rows, "intr 5 6", ""]))


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.setattr(contention, "_PROC", tmp_path)
    return FakeProc(tmp_path, [11, 12], processors=3)


@pytest.mark.parametrize(("own_niceness", "free"), [(0, 1.0), (10, 0.0)])
def test_contention_is_read_from_the_kernels_counters(
    own_niceness: int, free: float, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 102.0, 104.0])
    monkeypatch.setattr(contention.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(contention.os, "getpriority", lambda *which: own_niceness)
    meter = ContentionMeter([11, 12], processors={0, 1})
    proc.write({11: 0.5, 12: 1.0}, free=1.0)
    assert meter.read(busy=2.0) == pytest.approx((0.75, 1.0))  # two processors were idle for one of two seconds
    proc.write({11: 0.5, 12: 1.0}, free=2.0, nice=1.0)
    # Both were idle for a second and ran nice processes, or a nice team, for another; for half of it the team rested.
    assert meter.read(busy=1.0) == pytest.approx((0.0, free))
    meter.close()


def test_a_thread_that_ended_is_noticed() -> None:
    with pytest.raises(OSError, match="No such file"):
        ContentionMeter([2**22 + 1], os.sched_getaffinity(0))


@pytest.mark.skipif(not contention.measurable(), reason="the system has no such counters")
def test_the_governor_applies_decisions_to_a_real_team(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([Contention(0, 0), Contention(2, 0), Contention(0, 1)])
    monkeypatch.setattr(ContentionMeter, "read", lambda self, busy: next(seen))
    governor = ThreadGovernor(2, fixed=False)
    governor.begin()
    applied = []
    for number in range(4):  # the first begins to measure
        governor.step_ended(10.0 * number, seconds=1.0)
        applied.append((governor.threads, torch.get_num_threads()))
    governor.end()
    assert applied == [(2, 2), (2, 2), (1, 1), (2, 2)]


def test_short_steps_are_measured_together(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []
    monkeypatch.setattr(ContentionMeter, "read", lambda self, busy: readings.append(busy) or Contention(0, 0))
    governor = ThreadGovernor(2, fixed=False)
    for number in range(100):
        governor.step_ended(0.02 * number, seconds=0.02)
    governor.end()
    assert len(readings) == 11
    assert min(readings) >= READING


@pytest.mark.parametrize("fixed", [True, False])
def test_a_fixed_number_or_a_system_without_counters_changes_nothing(
    fixed: bool, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_governor, "measurable", lambda: fixed)
    monkeypatch.setattr(ContentionMeter, "read", lambda self, busy: Contention(9, 0))
    governor = ThreadGovernor(2, fixed=fixed)
    for number in range(5):
        governor.step_ended(10.0 * number, seconds=1.0)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "140000 100000"}, 1),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 2),
        ({"cpu.max": "9900000 100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({}, 2),
    ],
)
def test_a_containers_quota_bounds_the_threads(
    files: dict[str, str], expected: int, tmp_path: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text("3:cpu:/\n0::/\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    assert most_threads() == expected
