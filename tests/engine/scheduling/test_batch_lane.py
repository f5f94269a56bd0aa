"""Batches get what no other request needs: of steps, seats, slots and blocks."""

from dataclasses import dataclass, field

import pytest
from stepping import Stepping

from loragate.engine.scheduling import batch_lane
from loragate.engine.scheduling.batch_lane import BatchLane, DecodeTimes
from loragate.engine.scheduling.scheduler import Limits
from loragate.engine.sequence.sequence import Sequence

ALONE = 0.005  # seconds of a step with one row
FREE = 1e-7


@dataclass
class Machine:
    """Steps whose rows and prompt tokens take `per_row` seconds each, after the first."""

    per_row: float
    batch_seconds: float | None = None
    seats: int = 64
    blocks: int = 20_000
    slots: int = 4
    took: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = Limits(512, self.seats, 1 << 20, 0.1, batch_seconds=self.batch_seconds)
        self.engine = Stepping(limits=limits, blocks=self.blocks, slots=self.slots)
        self.now = 0.0
        self.engine.scheduler.batch_lane = BatchLane(self.batch_seconds, lambda: self.now)

    def step(self) -> dict[Sequence, int]:
        rows = self.engine.step()
        work = self.engine.scheduler.work
        self.took.append(ALONE + self.per_row * (work.decoding + work.prefill - 1))
        self.now += self.took[-1]
        self.engine.scheduler.record_step(work, self.took[-1])
        return rows

    def fill(
        self, tenant: str = "batch", count: int = 64, new: int = 400, adapter: str | None = None
    ) -> list[Sequence]:
        """Fill the lane with a tenant's batch."""
        return [self.engine.submit(tenant, 32, new, adapter, batch=True)[0] for _ in range(count)]

    def chat(self, new: int = 50, adapter: str | None = None) -> list[dict[Sequence, int]]:
        """Run one interactive request; return the steps until its end."""
        (chat,) = self.engine.submit("chat", prompt=32, new=new, adapter=adapter)
        steps = []
        while chat not in self.engine.finished:
            steps.append(self.step())
        return [rows for rows in steps if chat in rows]


def batch_rows(rows: dict[Sequence, int]) -> int:
    return sum(tokens for sequence, tokens in rows.items() if sequence.request.share.batch)


def test_a_step_takes_no_longer_with_batches() -> None:
    machine = Machine(per_row=0.001)
    alone = len(machine.chat())
    without = max(machine.took[1:])
    machine.fill()
    for _ in range(20):
        machine.step()
    machine.took.clear()
    steps = machine.chat()
    assert len(steps) == alone
    assert sum(batch_rows(rows) for rows in steps) <= 1, "one row is a twentieth of the step that reads the prompt"
    assert max(machine.took[1:]) <= 1.05 * without
    assert batch_rows(machine.step())


def test_rows_that_cost_nothing_are_filled() -> None:
    machine = Machine(per_row=FREE)
    machine.chat()
    machine.fill()
    for _ in range(20):
        machine.step()
    machine.chat(new=20)
    rows = [batch_rows(rows) for rows in machine.chat()]
    assert min(rows[1:]) > 30


def test_a_bound_that_is_set() -> None:
    machine = Machine(per_row=0.001, batch_seconds=0.012)
    machine.chat()
    machine.fill()
    for _ in range(200):
        machine.step()
    machine.took.clear()
    rows = [batch_rows(rows) for rows in machine.chat()]
    assert min(rows[5:]) >= 4
    assert max(machine.took[5:]) <= 0.0125


def test_steps_of_batches_alone_are_short_until_it_is_quiet() -> None:
    machine = Machine(per_row=0.001)
    machine.chat()
    machine.fill(new=4000)
    rows = [batch_rows(machine.step()) for _ in range(40)]
    assert 1 <= max(rows) <= batch_lane.MIN_CHUNK + batch_lane._FEW
    machine.now += 11.0
    assert batch_rows(machine.step()) > 200


@pytest.mark.parametrize("scarce", ["seats", "blocks", "slots"])
def test_others_get_at_once_what_batches_hold(scarce: str) -> None:
    def waits(filled: bool) -> int:
        machine = Machine(per_row=FREE, **{"seats": 4, "blocks": 40, "slots": 2} if scarce != "slots" else {"slots": 1})
        machine.chat(new=200)  # its tenant has been served more than the batch's
        if filled:
            machine.fill(count=8, adapter="theirs" if scarce == "slots" else None, new=100)
            while not machine.engine.scheduler.running:  # it has hardly been served
                machine.step()
        (chat,) = machine.engine.submit("chat", 32 * 6 if scarce == "blocks" else 32, 8, "own")
        start = machine.engine.steps
        while not chat.generated:
            machine.step()
        return machine.engine.steps - start

    assert waits(filled=True) <= waits(filled=False) + 1


def test_batches_are_preempted_before_others() -> None:
    machine = Machine(per_row=FREE, seats=4)
    others = [machine.engine.submit("chat", 32, 100)[0] for _ in range(3)]
    machine.step()
    machine.fill(count=1)
    machine.step()
    (late,) = machine.engine.submit("late", 32, 10)
    machine.step()
    assert {*others, late} == set(machine.engine.scheduler.running)


def test_tenants_batches_share_the_lane() -> None:
    machine = Machine(per_row=0.001, batch_seconds=0.010)
    machine.chat(new=5)
    machine.fill("a", count=60)
    machine.fill("b", count=4, new=200)
    for _ in range(150):
        machine.step()
    produced = machine.engine.produced
    assert 0.8 < produced["a"] / produced["b"] < 1.25


def test_a_batch_costs_its_tenant_no_turn() -> None:
    machine = Machine(per_row=FREE, seats=2)
    machine.fill("chat", count=2, new=500)
    for _ in range(200):
        machine.step()
    for tenant in ("chat", "other"):
        for _ in range(4):
            machine.engine.submit(tenant, 32, 60)
    before = machine.engine.produced["chat"]
    for _ in range(100):
        machine.step()
    own, others = machine.engine.produced["chat"] - before, machine.engine.produced["other"]
    assert 0.6 < own / others < 1.7


def test_the_queue_of_others_has_room_for_none_of_a_batch() -> None:
    machine = Machine(per_row=FREE, seats=2)
    machine.fill(count=20)
    machine.step()
    scheduler = machine.engine.scheduler
    assert scheduler._interactive_waiting == 0
    assert scheduler._free_seats == 2
    assert scheduler.rejection(machine.engine.request("chat"), 0.0) is None


def test_times_are_learned_from_few_steps() -> None:
    times = DecodeTimes()
    assert times.predict(3) is None
    times.observe(8, 0.008)
    assert times.predict(16) == pytest.approx(0.016), "the worst case, while only one size is known"
    for rows in (1, 2, 16, 32) * 40:
        times.observe(rows, 0.005 + 0.0001 * rows)
    assert times.predict(64) == pytest.approx(0.0114, rel=0.02)
    times.observe(1, 3.0)
    assert (times.predict(64) or 0) < 0.013
