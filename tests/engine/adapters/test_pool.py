"""The adapter pool without a model: which adapters are on the device, which are evicted, and that no page leaks."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pool_harness import PoolHarness, key, waiting

from loragate.engine.adapters.arena import PAGE, AdapterArena
from loragate.engine.adapters.copier import perform
from loragate.engine.adapters.pool import AdapterTooLarge
from loragate.engine.adapters.slot import StaleSlot
from loragate.engine.sequence.sequence import Sequence, SlotLease


def test_an_adapter_moves_through_the_tiers() -> None:
    world = PoolHarness()
    assert world.want("a")
    assert world.want("a")
    assert world.reads == [key("a")], "one read, however many wait"
    assert world.pool.acquire(key("a")) is None
    world.finish_reads()
    assert world.want("a")
    assert world.pool.acquire(key("a")) is None, "its pages are not filled yet"
    world.finish_copies()
    assert world.pool.acquire(key("a")) is not None
    world.check_contents()


def test_a_preloaded_adapter_is_read_once_and_waits_in_host_memory() -> None:
    world = PoolHarness(slots=1)
    lease = world.bring("a")
    world.pool.preload([key("a"), key("b"), key("b")])
    assert world.reads == [key("b")]
    world.finish_reads()
    world.pool.preload([key("b")])
    assert (world.reads, world.residents) == ([], {"a"})
    world.pool.release(lease)
    world.bring("b")
    assert (world.pool.counters.reads, world.pool.counters.loads) == (2, 2)


def test_a_request_joins_the_read_of_a_preloaded_adapter() -> None:
    world = PoolHarness()
    world.pool.preload([key("a")])
    assert world.want("a")
    assert world.reads == [key("a")]
    world.finish_reads()
    world.want("a")
    world.finish_copies()
    assert world.pool.acquire(key("a")) is not None


def test_preloads_leave_reads_to_requests() -> None:
    world = PoolHarness()
    world.pool.preload([key(f"a{number}") for number in range(9)])
    assert len(world.reads) == 4
    world.finish_reads()
    assert world.want("a8")


def test_an_adapter_in_use_is_never_evicted() -> None:
    world = PoolHarness(slots=1)
    lease = world.bring("a")
    world.want("b")
    world.finish_reads()
    assert not world.want("b")
    world.pool.release(lease)
    assert world.want("b")
    with pytest.raises(StaleSlot):
        world.pool.check(lease)


def test_the_least_recently_used_is_evicted_first() -> None:
    world = PoolHarness(slots=2)
    for name in ("a", "b", "a"):
        world.pool.release(world.bring(name))
    world.bring("c")
    assert world.residents == {"a", "c"}


def test_a_reload_from_the_host_tier_reads_no_file() -> None:
    world = PoolHarness(slots=1)
    for name in ("a", "b", "a"):
        world.pool.release(world.bring(name))
    assert (world.pool.counters.reads, world.pool.counters.loads) == (2, 3)


def test_a_large_adapter_evicts_as_many_as_necessary() -> None:
    world = PoolHarness(slots=8, pages=6)  # 'b' takes 2 × 3 pages, 'c' 2 × 1
    for name in ("c1", "c2"):
        world.pool.release(world.bring(name))
    world.pool.release(world.bring("b"))
    assert world.residents == {"b"}
    world.check_contents()


def test_an_adapter_larger_than_the_pool_is_rejected() -> None:
    world = PoolHarness(pages=5)
    world.want("b")
    with pytest.raises(AdapterTooLarge, match="adapter_device_bytes"):
        world.finish_reads()
    world.bring("c")


def test_whole_modules_have_their_own_limit() -> None:
    world = PoolHarness(pages=20)
    world.want("a")
    half_the_arena = 10 * PAGE
    host = replace(world.adapter("a"), full_weight_bytes=half_the_arena + 1)
    with pytest.raises(AdapterTooLarge, match=r"modules_to_save.*max_full_weight_bytes is 40960"):
        world.pool.read_done(world.reads.pop(), host)
    world.bring("a")


def test_a_pinned_adapter_is_loaded_and_stays() -> None:
    world = PoolHarness(slots=2)
    world.pool.pin([key("p"), key("q")])
    assert world.reads == [key("p")], "one slot must be left for all others"
    world.finish_reads()
    world.pool.request_pinned()
    world.finish_copies()
    for name in ("a", "b", "c"):
        world.pool.release(world.bring(name))
    assert "p" in world.residents
    world.pool.pin([])
    for name in ("a", "b"):
        world.pool.release(world.bring(name))
    assert "p" not in world.residents


def test_a_deleted_adapter_leaves_device_and_host_after_its_last_use() -> None:
    world = PoolHarness(slots=3)
    world.pool.pin([key("a"), key("b")])
    used, unused = world.bring("a"), world.bring("b")
    world.pool.release(unused)
    world.pool.retire([key("a"), key("b"), key("never seen")])
    assert set(world.pool.release_retired(lambda key: False)) == {key("b"), key("never seen")}
    assert world.residents == {"a"}
    assert world.pool.host.keys() == [key("a")]
    world.pool.check(used)
    world.pool.release(used)
    assert world.pool.release_retired(lambda key: True) == [], "a request waits for it"
    assert world.pool.release_retired(lambda key: False) == [key("a")]
    assert (world.residents, world.pool.host.keys(), world.pool.host.used) == (set(), [], 0)
    world.pool.request_pinned()
    assert not world.reads, "a pin on it is gone"
    world.pool.release(world.bring("a"))  # it exists again
    assert world.pool.release_retired(lambda key: False) == []


def test_an_adapter_deleted_while_it_loads() -> None:
    world = PoolHarness()
    gone = waiting("a")
    world.want("a", gone)
    world.pool.retire([key("a")])
    assert world.pool.release_retired(lambda key: False) == [], "it is being read"
    world.pool.discard(gone)
    world.finish_reads()
    assert world.pool.release_retired(lambda key: False) == [key("a")]
    assert len(world.pool.host) == 0


def test_the_host_tier_exceeds_its_budget_only_for_awaited_adapters() -> None:
    world = PoolHarness(slots=1, host_bytes=2 * 2 * PAGE)  # two adapters of the small kind
    lease = world.bring("c1")
    for name in ("c2", "c3", "c4", "c5"):
        world.want(name)
        world.finish_reads()
    assert world.pool.host.used <= 3 * 2 * PAGE, "beyond the budget nothing more is read ahead"
    world.pool.release(lease)
    for name in ("c2", "c3", "c4", "c5"):
        world.pool.release(world.bring(name))
    assert world.pool.host.used <= 2 * 2 * PAGE


def test_requests_that_end_while_waiting_leave_nothing_behind() -> None:
    world = PoolHarness(slots=1, host_bytes=1)
    gone = waiting("c")
    world.want("c", gone)
    world.pool.discard(gone)
    world.finish_reads()
    assert len(world.pool.host) == 0, "no request waits for it, and the budget has no room"


@settings(max_examples=60, stateful_step_count=60, deadline=None)
class PoolMachine(RuleBasedStateMachine):
    """Random orders of requests, reads, copies, uses, ends, pins and failures."""

    @initialize(slots=st.integers(1, 4), pages=st.sampled_from([6, 12, 40]), host=st.sampled_from([1, 30_000, 1 << 20]))
    def start(self, slots: int, pages: int, host: int) -> None:
        self.world = PoolHarness(slots=slots, pages=pages, host_bytes=host)
        self.waiting: dict[str, Sequence] = {}
        self.leases: list[tuple[str, SlotLease]] = []

    @rule(name=st.sampled_from("abcdef"), overdue=st.booleans())
    def want(self, name: str, overdue: bool) -> None:
        self.world.want(name, self.waiting.setdefault(name, waiting(name)), overdue=overdue)

    @precondition(lambda self: self.world.reads)
    @rule(fails=st.booleans(), data=st.data())
    def end_read(self, fails: bool, data: st.DataObject) -> None:
        wanted = data.draw(st.sampled_from(self.world.reads))
        self.world.reads.remove(wanted)
        if fails:
            self.world.pool.read_failed(wanted)
        else:
            self.world.pool.read_done(wanted, self.world.adapter(wanted.digest))

    @precondition(lambda self: self.world.copies)
    @rule(fails=st.booleans())
    def end_copy(self, fails: bool) -> None:
        copy = self.world.copies.pop(0)
        if fails:
            self.world.pool.copy_failed(copy)
        else:
            self.world.pool.copy_done(copy, perform(copy, self.world.staging))

    @rule(name=st.sampled_from("abcdef"))
    def use(self, name: str) -> None:
        lease = self.world.pool.acquire(key(name))
        if lease is not None:
            self.leases.append((name, lease))
            self.waiting.pop(name, None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.leases))
        self.leases.remove(held)
        self.world.pool.release(held[1])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.world.pool.discard(self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting)))))

    @rule(names=st.sets(st.sampled_from("abcdef"), max_size=3))
    def pin(self, names: set[str]) -> None:
        self.world.pool.pin([key(n) for n in sorted(names)])

    @rule(names=st.sets(st.sampled_from("abcdef"), max_size=3))
    def retire(self, names: set[str]) -> None:
        self.world.pool.retire([key(n) for n in sorted(names)])

    @rule()
    def release_retired(self) -> None:
        for gone in self.world.pool.release_retired(lambda key: key.digest in self.waiting):
            assert gone.digest not in self.world.residents
            assert self.world.pool.host.get(gone) is None
            assert gone.digest not in {name for name, _ in self.leases}

    @invariant()
    def leases_hold_their_own_adapter(self) -> None:
        for name, lease in self.leases:
            self.world.pool.check(lease)
            self.world.check_slot(name, lease.slot)

    @invariant()
    def pages_are_accounted_for(self) -> None:
        pool, arena = self.world.pool, self.world.arena
        held = sorted(r for s in pool._slots for r in s.runs)
        assert sum(r.count for r in held) == arena.used
        assert all(a.stop <= b.start for a, b in itertools.pairwise(held))
        holes = arena._holes
        assert all(a.stop < b.start for a, b in itertools.pairwise(holes)), "neighbouring holes are one"
        assert sum(h.count for h in holes) == arena.free

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _, lease in self.leases:
            self.world.pool.release(lease)
        for sequence in self.waiting.values():
            self.world.pool.discard(sequence)
        self.world.pool.pin([])
        self.world.finish_reads()
        self.world.finish_copies()
        assert self.world.pool.host.used <= self.world.host_bytes
        assert all(resident.sequences == 0 for resident in self.world.pool.residents())


TestPool = PoolMachine.TestCase


def test_the_arena_gives_all_or_nothing() -> None:
    arena = AdapterArena(8 * PAGE, torch.device("cpu"))
    first = arena.allocate([3 * PAGE, 1])
    assert first is not None
    assert arena.allocate([3 * PAGE, 2 * PAGE]) is None
    assert arena.used == 4
    arena.release(first)
    assert arena.allocate([8 * PAGE]) is not None


def test_the_arena_loses_no_page() -> None:
    rng = random.Random(3)
    arena = AdapterArena(64 * PAGE, torch.device("cpu"))
    held = []
    for _ in range(500):
        if held and rng.random() < 0.5:
            arena.release(held.pop(rng.randrange(len(held))))
        else:
            runs = arena.allocate([rng.randint(1, 5 * PAGE) for _ in range(rng.randint(1, 4))])
            if runs:
                held.append(runs)
    for runs in held:
        arena.release(runs)
    assert arena.allocate([64 * PAGE]) is not None
