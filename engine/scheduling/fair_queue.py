"""The waiting sequences in fair order: tenants by the service they received, then by priority and age. Batches' come
behind all others.

Requests of one tenant for one adapter form an `AdapterQueue`. Thousands of requests that wait for an adapter, or for a
slot, are thus examined through the head of their queue alone.
"""

import heapq
from dataclasses import dataclass, field

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.scheduling.virtual_counters import TenantCounter
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

Order = tuple[int, int]


def queue_order(sequence: Sequence) -> Order:
    """Return the sort key of a sequence within its tenant: higher priorities first, then older sequences."""
    return -sequence.request.share.priority, sequence.arrival


@dataclass(eq=False, slots=True)
class AdapterQueue:
    """Sequences of one tenant that wait for one adapter, or for the base model and thus only for a seat."""

    tenant: TenantCounter
    key: AdapterKey | None
    fair_order: "FairOrder"  # the order that it is part of
    blocked_since: int | None = None  # the step at which it found no slot; None once one of its sequences has a seat
    cleared_at: int | None = None  # the step at which others were last preempted for it
    reading: bool = False  # its adapter is being read into host memory, and no slot was promised for it yet
    arriving: bool = False  # its adapter was not on the device at the last check
    members: set[Sequence] = field(default_factory=set)
    _heap: list[tuple[Order, Sequence]] = field(default_factory=list)

    @property
    def head(self) -> Sequence:
        while self._heap[0][1] not in self.members:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    @property
    def order(self) -> Order:
        return queue_order(self.head)

    def add(self, sequence: Sequence) -> None:
        self.members.add(sequence)
        heapq.heappush(self._heap, (queue_order(sequence), sequence))

    def goes_before(self, other: "AdapterQueue") -> bool:
        if self.tenant is other.tenant:
            return self.order < other.order
        return self.tenant.turn < other.tenant.turn


class FairOrder:
    """Adapter queues in fair order."""

    def __init__(self) -> None:
        self._tenants: LazyHeap[TenantCounter] = LazyHeap(lambda tenant: tenant.turn)
        self._queues: dict[TenantCounter, LazyHeap[AdapterQueue]] = {}

    def add(self, queue: AdapterQueue) -> None:
        """Add a queue, or move it forward after its head or its tenant's claim changed."""
        self._queues.setdefault(queue.tenant, LazyHeap(lambda queue: queue.order)).add(queue)
        self._tenants.add(queue.tenant)

    def discard(self, queue: AdapterQueue) -> None:
        queues = self._queues.get(queue.tenant)
        if queues is not None:
            queues.discard(queue)
            if not queues:
                del self._queues[queue.tenant]
                self._tenants.discard(queue.tenant)

    def move_forward(self, tenant: TenantCounter) -> None:
        """Move a tenant forward after its claim decreased."""
        if tenant in self._tenants:
            self._tenants.add(tenant)

    def first(self) -> AdapterQueue | None:
        tenant = self._tenants.first()
        return None if tenant is None else self.first_for(tenant)

    def first_for(self, tenant: TenantCounter) -> AdapterQueue | None:
        queues = self._queues.get(tenant)
        return None if queues is None else queues.first()


class FairQueue:
    """The waiting sequences, in adapter queues.

    A queue is *ready* while its adapter is on the device or being loaded, as far as is known; the base model's queues
    are always ready. It is *blocked* while the device has no room for the adapter, and *unread* while host memory has
    none either.

    No operation is linear in the number of waiting sequences.
    """

    def __init__(self) -> None:
        self.ready = FairOrder()  # of adapters
        self.base = FairOrder()  # of the base model
        self.blocked = FairOrder()
        self.unread = FairOrder()
        self._queues: dict[tuple[TenantCounter, AdapterKey | None], AdapterQueue] = {}
        self._queue_by_sequence: dict[Sequence, AdapterQueue] = {}
        self._by_key: dict[AdapterKey, set[AdapterQueue]] = {}

    def __len__(self) -> int:
        return len(self._queue_by_sequence)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._queue_by_sequence

    def queue_for(self, sequence: Sequence) -> AdapterQueue:
        return self._queue_by_sequence[sequence]

    def add(self, sequence: Sequence, tenant: TenantCounter, *, ready: bool) -> AdapterQueue:
        """Queue a sequence by priority and age. `ready` is the state of a new queue; an existing one keeps its
        state."""
        key = sequence.request.adapter
        queue = self._queues.get((tenant, key))
        if queue is None:
            queue = self._queues[tenant, key] = AdapterQueue(tenant, key, self.ready if ready else self.unread)
            if key is None:
                queue.fair_order = self.base
            else:
                self._by_key.setdefault(key, set()).add(queue)
        queue.add(sequence)
        self._queue_by_sequence[sequence] = queue
        queue.fair_order.add(queue)
        return queue

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that got a seat or ended."""
        queue = self._queue_by_sequence.pop(sequence)
        queue.members.remove(sequence)
        if not queue.members:
            queue.fair_order.discard(queue)
            del self._queues[queue.tenant, queue.key]
            if queue.key is not None:
                self._by_key[queue.key].remove(queue)
                if not self._by_key[queue.key]:
                    del self._by_key[queue.key]

    def move(self, queue: AdapterQueue, fair_order: FairOrder) -> None:
        queue.fair_order.discard(queue)
        queue.fair_order = fair_order
        fair_order.add(queue)

    def move_forward(self, tenant: TenantCounter) -> None:
        """Move a tenant forward after its claim decreased."""
        for fair_order in (self.base, self.ready, self.blocked, self.unread):
            fair_order.move_forward(tenant)

    def waiting_for(self, key: AdapterKey) -> list[Sequence]:
        return [sequence for queue in self._by_key.get(key, ()) for sequence in queue.members]

    def next_for_seat(self) -> AdapterQueue | None:
        """Return the first queue among those that are ready and those of the base model."""
        return _earlier(self.ready.first(), self.base.first())

    def next_for(self, tenant: TenantCounter) -> AdapterQueue | None:
        """Return the first such queue of one tenant."""
        return _earlier(self.ready.first_for(tenant), self.base.first_for(tenant))


def _earlier(one: AdapterQueue | None, other: AdapterQueue | None) -> AdapterQueue | None:
    if one is None or other is None:
        return one or other
    return one if one.goes_before(other) else other
