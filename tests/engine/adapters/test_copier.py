"""Adapter copies on a device that executes late, in any order that its events allow.

Each step must read exactly the adapter that it was scheduled with, at the time when the device executes it.
"""

import random
from collections.abc import Callable

import pytest
import torch
from deferred_device import DeferredDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_harness import PoolHarness, key, numbers

from loragate.engine.adapters.arena import PAGE
from loragate.engine.adapters.copier import AdapterCopier
from loragate.engine.adapters.staging_buffers import Staging
from loragate.engine.sequence.sequence import SlotLease

NAMES = "abcd"


class DeferredHarness:
    """Launches steps without waiting for them; their reads are checked when the device executes them."""

    def __init__(self, slots: int, pages: int, buffers: int, size: int, rng: random.Random) -> None:
        self.device = DeferredDevice(rng)
        staging = Staging(self.device.copies, [torch.empty(size, dtype=torch.uint8) for _ in range(buffers)])
        self.world = PoolHarness(slots, pages, staging=staging, mark=self.device.computes.record)
        self.leases: list[tuple[str, SlotLease]] = []
        self.read = 0

    def want(self, name: str) -> None:
        self.request(name)
        self.world.finish_copies()

    def request(self, name: str) -> None:
        """Request an adapter, up to the copier."""
        self.world.want(name, overdue=True)
        self.world.finish_reads()
        self.world.want(name, overdue=True)

    def use(self, name: str) -> None:
        lease = self.world.pool.acquire(key(name))
        if lease is not None:
            self.leases.append((name, lease))

    def end(self, name: str) -> None:
        """End the oldest use; its step stays launched."""
        for held in [held for held in self.leases if held[0] == name]:
            self.leases.remove(held)
            self.world.pool.release(held[1])

    def retire(self, name: str) -> None:
        self.world.pool.retire([key(name)])
        self.world.pool.release_retired(lambda _: False)

    def step(self, _: str) -> None:
        for name, lease in self.leases:
            self.world.pool.check(lease)
            for i, module in enumerate(self.world.modules):
                self.device.computes.launch(self._reading(name, i, module.slots[lease.slot].values))

    def serve(self, name: str) -> None:
        """Serve a request from beginning to end, in a step or two."""
        self.want(name)
        self.use(name)
        self.step(name)
        self.end(name)

    def advance(self, _: str) -> None:
        self.device.advance()

    def _reading(self, name: str, module: int, values: torch.Tensor) -> Callable[[], None]:
        def read() -> None:
            assert torch.equal(values, numbers(name, module)), f"a step on {name} found something else"
            self.read += 1

        return read

    def finish(self) -> None:
        while self.device.advance():
            pass


ACTIONS = ("serve", "serve", "serve", "want", "use", "end", "step", "advance", "retire")


@given(
    slots=st.integers(1, 3),
    pages=st.sampled_from([6, 8, 12]),
    buffers=st.integers(1, 3),
    size=st.sampled_from([1000, PAGE, 5 * PAGE]),
    rng=st.randoms(use_true_random=False),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(NAMES)), min_size=5, max_size=30),
)
@settings(max_examples=150)
def test_every_step_reads_its_own_adapters(
    slots: int, pages: int, buffers: int, size: int, rng: random.Random, actions: list[tuple[str, str]]
) -> None:
    late = DeferredHarness(slots, pages, buffers, size, rng)
    for action, name in actions:
        getattr(late, action)(name)
    late.finish()


def test_a_load_waits_for_the_last_steps_of_all_evicted_adapters() -> None:
    late = DeferredHarness(slots=3, pages=6, buffers=2, size=PAGE, rng=random.Random(0))
    for name in "cf":
        late.serve(name)
    late.request("b")  # needs the pages of both
    [copy] = late.world.copies
    assert len(copy.after) == 2
    late.world.finish_copies()
    assert late.read == 4, "both steps were over before the copy was"
    late.request("c")
    [copy] = late.world.copies
    assert copy.after == (), "the evicted adapters were never used"


@pytest.mark.parametrize("size", [64, 1000, 3 * PAGE, 100 * PAGE])
def test_pieces_cover_every_byte_once(size: int) -> None:
    """Pieces are in order, each at most a buffer in size, and few if buffers are large."""
    world = PoolHarness()
    world.want("b")
    world.finish_reads()
    world.want("b")
    [copy] = world.copies
    pieces = list(copy.pieces(size))
    assert all(source.nbytes <= size for source, _ in pieces)
    assert all(source.nbytes == sum(t.nbytes for t in targets) for source, targets in pieces)
    assert torch.equal(torch.cat([source for source, _ in pieces]), copy.host.memory)
    assert len(pieces) == -(-copy.host.memory.nbytes // size) or size == 1000
    for source, targets in pieces:
        world.staging.stream.copy(source, targets)
    world.pool.copy_done(copy, copy.patches())
    world.check_contents()


def test_the_copier_reports_finished_copies() -> None:
    """The report comes from the copier's own thread, however late the device is."""
    late = DeferredHarness(slots=2, pages=40, buffers=2, size=PAGE, rng=random.Random(1))
    world = late.world
    copier = AdapterCopier(
        torch.device("cpu"), lambda copy, patches: world.pool.copy_done(copy, patches), world.staging
    )
    late.request("a")
    copier.request(world.copies.pop())
    copier.close()
    assert world.residents == {"a"}
    world.check_contents()
