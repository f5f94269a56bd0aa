"""Allocation of seats: which waiting sequences join the batch, and which seated ones are preempted for them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.scheduling import preemption
from loragate.engine.scheduling.fair_queue import AdapterQueue, FairQueue
from loragate.engine.scheduling.preemption import ScheduledSequence
from loragate.engine.scheduling.slot_assignment import SlotAssignment
from loragate.engine.scheduling.virtual_counters import VirtualTokenCounters
from loragate.engine.sequence.sequence import Sequence


class SeatAllocator:
    """Moves sequences between the queue and their seats, with the blocks and slots that they hold.

    `scheduled` are the scheduler's records of all sequences.
    """

    def __init__(
        self,
        max_sequences: int,
        scheduled: Mapping[Sequence, ScheduledSequence],
        waiting: FairQueue,
        counters: VirtualTokenCounters,
        blocks: BlockPool,
        slots: SlotAssignment,
    ) -> None:
        self._max_sequences = max_sequences
        self._scheduled = scheduled
        self._waiting = waiting
        self._counters = counters
        self._blocks = blocks
        self._slots = slots
        self._reservations = SeatReservations()
        self._step = 0
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def free(self) -> int:
        """The number of free seats, including reserved ones."""
        return self._max_sequences - len(self.running)

    @property
    def in_order(self) -> list[ScheduledSequence]:
        """The seated sequences in fair order: those of the least served tenant first."""
        return sorted((self._scheduled[sequence] for sequence in self.running), key=lambda entry: entry.order)

    def begin_step(self) -> None:
        self._step += 1

    def enqueue(self, entry: ScheduledSequence) -> None:
        key = entry.sequence.request.adapter
        ready = key is None or self._slots.is_resident(key)
        queue = self._waiting.add(entry.sequence, entry.tenant, ready=ready)
        self._slots.note_waiting(queue)
        entry.tenant.backlog += entry.expected

    def remove(self, entry: ScheduledSequence) -> None:
        """Remove a sequence that ended from its seat or from the queue."""
        if entry.seated:
            self._reserve_seat(entry)
            self._unseat(entry)
        else:
            self._dequeue(entry)

    def preempt(self, entry: ScheduledSequence) -> None:
        self._unseat(entry)
        self.enqueue(entry)
        self.preemptions += 1

    def give_seats(self, *, hold: bool) -> Sequence | None:
        """Give seats in fair order, and return the first sequence that lacks a seat or blocks, if any.

        No other sequence overtakes it, or else short prompts could starve a long one; it holds its adapter. With
        `hold`, queues are held back in favour of one that has waited too long for a slot.
        """
        set_aside: list[AdapterQueue] = []
        short_of_room = None
        # With an empty batch, reservations would only delay others.
        self._reservations.expire(self._step if self.running else math.inf)
        self._use_reservations()
        while (queue := self._waiting.next_for_seat()) is not None:
            if not self._slots.lease(queue) or (hold and self._slots.held_back(queue)):
                self._slots.release(queue.head)
                if queue.fair_order is self._waiting.ready:
                    queue.fair_order.discard(queue)
                    set_aside.append(queue)
                continue
            victims = self._victims(queue)
            if victims is None:
                short_of_room = queue.head
                break
            self._seat(queue, victims)
        for queue in set_aside:
            queue.fair_order.add(queue)
        return short_of_room

    def _use_reservations(self) -> None:
        for tenant_id in self._reservations.tenants:
            tenant = self._counters.find(tenant_id)
            queue = None if tenant is None else self._waiting.next_for(tenant)
            if queue is not None and self._slots.lease(queue):
                self._reservations.remove(tenant_id)
                victims = self._victims(queue)
                if victims is None:
                    self._slots.release(queue.head)
                else:
                    self._seat(queue, victims, by_preemption=True)

    def _reserve_seat(self, entry: ScheduledSequence) -> None:
        """Reserve the seat of a sequence that ended, unless its tenant has received more service than others by now."""
        tenant = entry.tenant
        lead = tenant.counter - self._counters.level
        if tenant.batch:
            return
        if entry.admitted_by_preemption and tenant.sequences == 1 and lead * tenant.weight < preemption.QUANTUM:
            self._reservations.add(tenant.tenant_id, self._step, len(entry.sequence.blocks))

    def _victims(self, queue: AdapterQueue) -> list[ScheduledSequence] | None:
        """Return the sequences to preempt for the queue's head; None if it must wait for a seat or blocks."""
        seats = self.free - len(self._reservations)
        committed = self._reservations.blocks + sum(map(self._outstanding_blocks, self.running))
        missing = self._blocks.shortage(queue.head, committed)
        if seats > 0 and missing <= 0:
            return []
        return preemption.victims_for_room(self.in_order, queue.tenant, 1 - seats, missing)

    def _outstanding_blocks(self, sequence: Sequence) -> int:
        """Return the blocks that a seated sequence still needs for its prompt, plus one to grow into."""
        return max(0, self._blocks.blocks_for(len(sequence.tokens)) - len(sequence.blocks)) + 1

    def _seat(self, queue: AdapterQueue, victims: list[ScheduledSequence], *, by_preemption: bool = False) -> None:
        for victim in victims:
            self.preempt(victim)
        entry = self._scheduled[queue.head]
        entry.admitted_by_preemption = by_preemption or bool(victims)
        queue.blocked_since = None
        self._dequeue(entry)
        entry.token_cost = self._slots.token_cost(queue.key)
        entry.seated = True
        entry.tenant.seated += 1
        entry.tenant.pending += entry.pending
        self.running.append(entry.sequence)

    def _unseat(self, entry: ScheduledSequence) -> None:
        sequence, tenant = entry.sequence, entry.tenant
        self.running.remove(sequence)
        entry.seated = False
        tenant.seated -= 1
        tenant.pending -= entry.pending
        self._waiting.move_forward(tenant)
        self._blocks.release(sequence)
        sequence.computed = 0
        self._slots.release(sequence)

    def _dequeue(self, entry: ScheduledSequence) -> None:
        self._waiting.remove(entry.sequence)
        entry.tenant.backlog -= entry.expected


RESERVATION_STEPS = 4
"""If the tenant does not come back, the cost is one row for this many steps, far less than recomputing a sequence."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reserved seat: the step until which it is held, and the blocks that go with it."""

    until: int
    blocks: int


class SeatReservations:
    """Reservations by tenant."""

    def __init__(self) -> None:
        self._reservations: dict[str, Reservation] = {}

    def __len__(self) -> int:
        return len(self._reservations)

    @property
    def tenants(self) -> list[str]:
        return list(self._reservations)

    @property
    def blocks(self) -> int:
        return sum(reservation.blocks for reservation in self._reservations.values())

    def add(self, tenant_id: str, step: int, blocks: int) -> None:
        self._reservations[tenant_id] = Reservation(step + RESERVATION_STEPS, blocks)

    def remove(self, tenant_id: str) -> None:
        del self._reservations[tenant_id]

    def expire(self, step: float) -> None:
        self._reservations = {tenant: held for tenant, held in self._reservations.items() if step < held.until}
