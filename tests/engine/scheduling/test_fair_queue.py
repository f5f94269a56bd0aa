"""The fair order of sequences, and its heap, whose keys change while items are in it."""

from hypothesis import given
from hypothesis import strategies as st

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.scheduling.fair_queue import FairQueue
from loragate.engine.scheduling.virtual_counters import TenantCounter
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams, Share
from loragate.engine.sequence.sequence import Sequence


def sequence(tenant: str = "t", adapter: str | None = None, priority: int = 0) -> Sequence:
    key = None if adapter is None else AdapterKey(tenant, adapter)
    return Sequence(Request(1, 1, (1,), key, SamplingParams(1, seed=0), share=Share(tenant, priority=priority)), 0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["set", "out", "look"]), st.integers(0, 9))))
def test_the_heap_returns_the_smallest_after_any_change(operations: list[tuple[str, str, int]]) -> None:
    keys: dict[str, int] = {}
    heap: LazyHeap[str] = LazyHeap(keys.__getitem__)
    held: set[str] = set()
    for item, operation, key in operations:
        if operation == "set":
            grew = item in held and key >= keys[item]
            keys[item] = key
            if not grew:
                heap.add(item)
            held.add(item)
        elif operation == "out":
            heap.discard(item)
            held.discard(item)
        first = heap.first()
        assert (first is None) == (not held)
        assert first is None or keys[first] == min(keys[item] for item in held)
        assert len(heap) == len(held)


def test_the_heap_discards_stale_entries() -> None:
    keys = {"a": 0, "b": 0}
    heap: LazyHeap[str] = LazyHeap(keys.__getitem__)
    heap.add("a")
    for fallen in range(5000):
        keys["b"] = -fallen
        heap.add("b")
    assert len(heap._entries) < 200


def test_equal_tenants_alternate_in_order_of_arrival() -> None:
    heap: LazyHeap[str] = LazyHeap(lambda item: 0)
    for item in "cab":
        heap.add(item)
        heap.add(item)
    assert heap.first() == "c"


def test_a_smaller_reservation_moves_a_tenant_forward() -> None:
    """A seated prompt that is preempted no longer counts against its tenant."""
    queue = FairQueue()
    eager, other = TenantCounter("eager", pending=100.0), TenantCounter("other", counter=50.0)
    for account in (eager, other):
        queue.add(sequence(account.tenant_id), account, ready=True)
    lane = queue.next_for_seat()
    assert lane is not None
    assert lane.tenant is other
    eager.pending = 0.0
    queue.move_forward(eager)
    lane = queue.next_for_seat()
    assert lane is not None
    assert lane.tenant is eager


def test_within_a_tenant_queues_are_ordered_by_their_heads() -> None:
    queue, account = FairQueue(), TenantCounter("t")
    first, second = sequence(adapter="x"), sequence()
    for each in (first, second):
        queue.add(each, account, ready=True)

    def head() -> Sequence:
        lane = queue.next_for_seat()
        assert lane is not None
        return lane.head

    assert head() is first
    urgent = sequence(priority=1)
    queue.add(urgent, account, ready=True)
    assert head() is urgent
    queue.remove(urgent)
    queue.remove(first)
    assert head() is second
    queue.remove(second)
    assert queue.next_for_seat() is None
    assert not queue
