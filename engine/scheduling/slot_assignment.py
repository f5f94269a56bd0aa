"""Assignment of device slots to adapter queues."""

from dataclasses import dataclass, replace

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.scheduling.fair_queue import AdapterQueue, FairQueue
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

OVERTAKE_STEPS = 32
"""Steps for which sequences with a slot may overtake one that waits for a slot.

After that, sequences later in order get no seat for an adapter, so slots fall free and its turn comes: `A, B, A, A, …`
cannot starve B. An adapter that was loaded in the meantime may seat sequences that waited for it for as long.
"""


class SlotAssignment:
    """Moves queues between ready, blocked and unread according to the adapter pool."""

    def __init__(self, adapters: AdapterPool, waiting: FairQueue) -> None:
        self._adapters = adapters
        self._waiting = waiting
        self._history = AdapterHistory()
        self._step = 0

    def begin_step(self) -> None:
        self._step += 1

    def set_token_cost(self, key: AdapterKey, token_cost: float) -> None:
        self._history.set_token_cost(key, token_cost)

    def token_cost(self, key: AdapterKey | None) -> float:
        return self._history.find(key).token_cost

    def is_resident(self, key: AdapterKey) -> bool:
        return self._adapters.is_resident(key)

    def note_waiting(self, queue: AdapterQueue) -> None:
        """Note that a sequence joined the queue."""
        if queue.fair_order is self._waiting.unread and queue.blocked_since is None:
            queue.blocked_since = self._step

    def lease(self, queue: AdapterQueue) -> bool:
        """Hold the head's adapter. If that fails, the adapter is being loaded or the queue is blocked again."""
        if queue.key is None or self._hold(queue, queue.key):
            return True
        queue.arriving = True
        if queue.reading and self._adapters.host.get(queue.key) is not None:
            queue.reading = False
            self._waiting.move(queue, self._waiting.blocked)  # others may have waited longer for room
            return False
        return self.request_load(queue) and self._hold(queue, queue.key)

    def _hold(self, queue: AdapterQueue, key: AdapterKey) -> bool:
        lease = self._adapters.acquire(key)
        if lease is None:
            return False
        queue.head.hold(lease)
        if queue.arriving:
            queue.arriving = False
            self._history.set_loaded_at(key, self._step)
        return True

    def release(self, sequence: Sequence | None) -> None:
        if sequence is not None and sequence.lease is not None:
            self._adapters.release(sequence.lease)
            sequence.lease = None

    def request_load(self, queue: AdapterQueue) -> bool:
        """Request the queue's adapter from the pool; if no room can be made for it, move the queue to blocked or
        unread."""
        assert queue.key is not None
        read = self._adapters.host.get(queue.key) is not None
        if self._adapters.request(queue.key, queue.head, overdue=self._overdue(queue)):
            queue.reading = not read
            return True
        self._waiting.move(queue, self._waiting.blocked if read else self._waiting.unread)
        if queue.blocked_since is None:
            queue.blocked_since = self._step
        return False

    def may_preempt_for(self, queue: AdapterQueue) -> bool:
        """Return whether others should be preempted: only room on the device is missing, and no recent attempt
        failed."""
        recently = queue.cleared_at is not None and self._step - queue.cleared_at <= OVERTAKE_STEPS
        return queue.fair_order is self._waiting.blocked and not recently

    def record_preemption(self, queue: AdapterQueue) -> None:
        """Record that others were preempted for the queue."""
        queue.cleared_at = self._step

    def held_back(self, queue: AdapterQueue) -> bool:
        """Return whether an earlier queue has waited too long for a slot, so that this one must not take a seat."""
        blocked = self._waiting.blocked.first()
        return (
            queue.key is not None
            and blocked is not None
            and self._overdue(blocked)
            and blocked.goes_before(queue)
            and self._step - self._history.find(queue.key).loaded_at > OVERTAKE_STEPS
        )

    def _overdue(self, queue: AdapterQueue) -> bool:
        return queue.blocked_since is not None and self._step - queue.blocked_since > OVERTAKE_STEPS


_MAX_KNOWN = 1 << 16


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    token_cost: float = 1.0
    loaded_at: int = 0  # a step


class AdapterHistory:
    """Token costs and load steps by adapter. Bounded: the adapters updated longest ago are dropped."""

    def __init__(self) -> None:
        self._known: dict[AdapterKey, AdapterRecord] = {}

    def find(self, key: AdapterKey | None) -> AdapterRecord:
        return AdapterRecord() if key is None else self._known.get(key, AdapterRecord())

    def set_token_cost(self, key: AdapterKey, token_cost: float) -> None:
        self._note(key, replace(self.find(key), token_cost=token_cost))

    def set_loaded_at(self, key: AdapterKey, step: int) -> None:
        self._note(key, replace(self.find(key), loaded_at=step))

    def _note(self, key: AdapterKey, record: AdapterRecord) -> None:
        self._known.pop(key, None)
        self._known[key] = record
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
