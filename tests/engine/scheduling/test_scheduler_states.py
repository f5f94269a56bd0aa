"""Requests come and go in random order: none is lost, nothing leaks, and the counters add up."""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_machines import run_machine
from stepping import BLOCK, Stepping

from loragate.engine.sequence.sequence import Sequence

TENANTS = ("a", "b", "c")
ADAPTERS = (None, "x", "y", "z")


class Scheduling(RuleBasedStateMachine):
    """Steps, arrivals, cancellations, failing adapters and deadlines, with little of every resource."""

    @initialize(seats=st.integers(1, 4), blocks=st.integers(8, 24), slots=st.integers(1, 2), crowded=st.booleans())
    def begin(self, seats: int, blocks: int, slots: int, crowded: bool) -> None:
        self.engine = Stepping(seats, 16, blocks, slots, host_bytes=0 if crowded else 1 << 20)
        self.alive: list[Sequence] = []
        self.now = 0.0

    @rule(
        tenant=st.sampled_from(TENANTS),
        adapter=st.sampled_from(ADAPTERS),
        prompt=st.integers(1, 30),
        new=st.integers(1, 30),
        n=st.integers(1, 3),
        share=st.fixed_dictionaries(
            {"weight": st.sampled_from([0.5, 1.0, 3.0]), "priority": st.integers(-1, 1)},
            optional={"deadline": st.floats(0, 50), "batch": st.booleans()},
        ),
    )
    def arrive(self, tenant: str, adapter: str | None, prompt: int, new: int, n: int, share: Any) -> None:
        if share.get("batch"):
            share.pop("deadline", None)
        self.alive += self.engine.submit(tenant, prompt, new, adapter, n, **share)

    @rule(steps=st.integers(1, 40))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 0.1
            for sequence, failure in self.engine.scheduler.expired(self.now):
                assert not sequence.generated
                assert failure.retry_after
                self.end(sequence)
            before = {sequence: sequence.generated for sequence in self.alive}
            rows = self.engine.step()
            self.engine.scheduler.record_step(self.engine.scheduler.work, 0.1)
            assert sum(rows.values()) <= 16
            assert all(sequence.generated - had <= 1 for sequence, had in before.items())
        self.alive = [sequence for sequence in self.alive if sequence not in self.engine.finished]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.alive))
        for sequence in self.engine.scheduler.find(1, chosen.request.request_id):
            self.end(sequence)

    @precondition(lambda self: self.engine.reads)
    @rule()
    def a_read_fails(self) -> None:
        _, key = self.engine.reads.pop()
        for sequence in self.engine.scheduler.waiting_for(key):
            self.end(sequence)
        self.engine.adapters.read_failed(key)

    @invariant()
    def every_sequence_is_in_one_place(self) -> None:
        if not hasattr(self, "engine"):
            return
        scheduler = self.engine.scheduler
        assert len(scheduler.running) + len(scheduler.waiting) == len(self.alive)
        assert all((s in scheduler.running) != (s in scheduler.waiting) for s in self.alive)
        assert all(not s.blocks and s.lease is None and not s.computed for s in self.alive if s in scheduler.waiting)

    @invariant()
    def held_resources_add_up(self) -> None:
        if not hasattr(self, "engine"):
            return
        running = self.engine.scheduler.running
        assert self.engine.pool.used == sum(len(sequence.blocks) for sequence in running)
        assert all(len(sequence.blocks) * BLOCK >= sequence.computed for sequence in running)
        leased = sum(sequence.lease is not None for sequence in running)
        assert sum(slot.references for slot in self.engine.adapters._slots) == leased
        assert all((s.lease is None) == (s.request.adapter is None) for s in running)

    @invariant()
    def counters_match_their_sequences(self) -> None:
        if not hasattr(self, "engine"):
            return
        scheduler = self.engine.scheduler
        lanes = {False: scheduler._counters.interactive, True: scheduler._counters.batches}
        for tenant, batch in itertools.product(TENANTS, lanes):
            account = lanes[batch].find(tenant)
            share = tenant, batch
            mine = [s for s in self.alive if (s.request.share.tenant_id, s.request.share.batch) == share]
            seated = [s for s in mine if s in scheduler.running]
            assert (account.sequences if account else 0) == len(mine)
            assert (account.seated if account else 0) == len(seated)
            assert (account.waiting if account else 0) == len(mine) - len(seated)
            if account is not None and mine:
                assert abs(account.pending - sum(scheduler._scheduled[s].pending for s in seated)) < 1e-6

    def teardown(self) -> None:
        """Run until all remaining requests have finished."""
        if hasattr(self, "engine"):
            self.engine.until(*self.alive, at_most=20_000)
            assert self.engine.at_rest()

    def end(self, sequence: Sequence) -> None:
        self.engine.scheduler.remove(sequence)
        self.alive.remove(sequence)


def test_any_requests_in_any_order() -> None:
    run_machine(Scheduling, examples=40, steps=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_any_requests_in_any_order_in_long_runs() -> None:
    run_machine(Scheduling, examples=1000, steps=60)
