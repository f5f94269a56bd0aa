"""The order in which completions reach vLLM, which computes them in the order of arrival. So it gets no more than it
computes at once, and the rest waits here, in fair order.

A completion waits for its adapter, then for a seat. Both are given to the tenant that received the least service. Those
of batches come behind all others, and begin only while no other runs.
"""

import time
from dataclasses import dataclass
from functools import partial

from loragate.engine.adapters.token_cost import GENERATED_UNITS, PROMPT_UNITS
from loragate.engine.scheduling.fair_queue import AdapterQueue, FairQueue
from loragate.engine.scheduling.overload import Deadlines, Overload, QueueBounds, QueueLoad
from loragate.engine.scheduling.sequence_index import SequenceIndex
from loragate.engine.scheduling.virtual_counters import LaneCounters, TenantCounter
from loragate.engine.sequence.output import Failure
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.vllm_backend.adapter_slots import AdapterSlots


@dataclass(eq=False, slots=True)
class _Entry:
    tenant: TenantCounter
    expected: float  # units that are part of the tenant's backlog while it waits
    token_cost: float = 1.0


class RequestQueue:
    """Waiting and seated completions. Runs on the event loop.

    In the FairQueue, `unread` are those without a slot for their adapter, `blocked` those whose adapter is being
    loaded, `ready` those whose adapter is loaded.
    """

    def __init__(self, seats: int, bounds: QueueBounds, slots: AdapterSlots) -> None:
        self._seats = seats
        self._slots = slots
        self._counters = LaneCounters()
        self._overload = Overload(bounds, self._counters.interactive)
        self._deadlines = Deadlines()
        self._index = SequenceIndex()
        self._entries: dict[Sequence, _Entry] = {}
        self._units = 0.0  # served since the last measurement
        self._measured = time.monotonic()
        self.waiting = FairQueue()
        self.seated: set[Sequence] = set()

    def rejection(self, request: Request) -> Failure | None:
        """Return why a new request must be rejected, or None."""
        deadline = request.share.deadline
        max_wait = None if deadline is None else deadline - time.monotonic()
        free = max(0, self._seats - len(self.seated) - len(self.waiting))
        return self._overload.rejection(request, len(self.waiting), free, max_wait)

    def add(self, sequence: Sequence) -> None:
        request = sequence.request
        tenant = self._counters.enter(request.share, request.session_id)
        expected = self._overload.expected_units(sequence)
        self._entries[sequence] = _Entry(tenant, expected)
        tenant.backlog += expected
        self._index.add(sequence)
        if request.share.deadline is not None:
            self._deadlines.add(sequence, request.share.deadline)
        ready = request.adapter is None or self._slots.is_resident(request.adapter)
        self.waiting.add(sequence, tenant, ready=ready)

    def next(self) -> Sequence | None:
        """Seat the next completion and return it, or None if none can begin. Its adapter is loaded."""
        self._request_adapters()
        if len(self.seated) >= self._seats:
            return None
        queue = self.waiting.next_for_seat()
        if queue is None or self._is_held(queue):
            queue = self.waiting.base.first()
        if queue is None or (queue.tenant.batch and self._has_others()):
            return None
        return self._seat(queue.head)

    def charge(self, sequence: Sequence, generated: int) -> None:
        """Charge a tenant for tokens that were generated for it."""
        self._charge(self._entries[sequence], GENERATED_UNITS * generated)

    def remove(self, sequence: Sequence) -> None:
        """Remove a completion that ended, waiting or seated."""
        entry = self._entries.pop(sequence)
        if sequence in self.seated:
            self.seated.discard(sequence)
            entry.tenant.seated -= 1
        else:
            self.waiting.remove(sequence)
            entry.tenant.backlog -= entry.expected
        self._counters.leave(entry.tenant)
        self._deadlines.discard(sequence)
        self._index.remove(sequence)
        if sequence.generated:
            self._overload.record_length(sequence.generated)

    def holds(self, sequence: Sequence) -> bool:
        return sequence in self._entries

    def find(self, session_id: int, request_id: int | None) -> list[Sequence]:
        return self._index.find(session_id, request_id)

    def wants(self, key: AdapterKey) -> bool:
        """Return whether a completion waits for the adapter."""
        return bool(self.waiting.waiting_for(key))

    def loaded(self, key: AdapterKey) -> None:
        """Make ready what waits for an adapter that was loaded."""
        self._move(key, ready=True)

    def evicted(self, key: AdapterKey) -> None:
        """Let what waits for an adapter that was evicted wait for a slot again."""
        self._move(key, ready=False)

    def expired(self) -> list[tuple[Sequence, Failure]]:
        """Return waiting completions whose deadline has passed, each once."""
        late = self._deadlines.pop_expired(time.monotonic())
        return [(s, self._overload.missed_deadline(s.request)) for s in late if s in self.waiting]

    def load(self) -> QueueLoad:
        """Return the load of the queue, and measure the rate of service since the last call."""
        now = time.monotonic()
        if len(self.waiting):
            self._overload.record_service(self._units, now - self._measured)
        self._units, self._measured = 0.0, now
        return self.backlog

    @property
    def backlog(self) -> QueueLoad:
        """The load of the queue at the rate that was measured last."""
        return self._overload.load()

    def served(self) -> dict[str, float]:
        return self._counters.interactive.served.changes()

    def tenants(self) -> list[TenantCounter]:
        """Return the tenants with open completions, those with the longest queues first."""
        return self._counters.interactive.open()

    def _request_adapters(self) -> None:
        """Request adapters in fair order while there are slots."""
        self._slots.request_pinned()
        while (queue := self.waiting.unread.first()) is not None:
            assert queue.key is not None
            if self._slots.is_resident(queue.key):
                self.waiting.move(queue, self.waiting.ready)
            elif self._slots.request(queue.key, self.wants) or self._slots.request(
                queue.key, partial(self._comes_first, queue)
            ):
                self.waiting.move(queue, self.waiting.blocked)
            else:
                return

    def _comes_first(self, queue: AdapterQueue, key: AdapterKey) -> bool:
        """Return whether what waits for an adapter comes before a queue that wants its slot."""
        return any(not queue.goes_before(other) for other in self._queues(key))

    def _is_held(self, queue: AdapterQueue) -> bool:
        """Return whether a queue must leave its adapter to run out, because one that comes before it has no slot."""
        first = self.waiting.unread.first()
        return queue.key is not None and first is not None and first.goes_before(queue)

    def _seat(self, sequence: Sequence) -> Sequence:
        entry, key = self._entries[sequence], sequence.request.adapter
        self.waiting.remove(sequence)
        self.seated.add(sequence)
        self._deadlines.discard(sequence)
        entry.tenant.seated += 1
        entry.tenant.backlog -= entry.expected
        entry.token_cost = 1.0 if key is None else self._slots.token_cost(key)
        self._charge(entry, PROMPT_UNITS * sequence.prompt_length)
        return sequence

    def _charge(self, entry: _Entry, units: float) -> None:
        self._counters.charge(entry.tenant, units * entry.token_cost)
        self._units += units * entry.token_cost

    def _has_others(self) -> bool:
        """Return whether completions of other requests than batches' run, which those would slow down."""
        return any(not self._entries[sequence].tenant.batch for sequence in self.seated)

    def _move(self, key: AdapterKey, *, ready: bool) -> None:
        for queue in self._queues(key):
            self.waiting.move(queue, self.waiting.ready if ready else self.waiting.unread)

    def _queues(self, key: AdapterKey) -> set[AdapterQueue]:
        return {self.waiting.queue_for(sequence) for sequence in self.waiting.waiting_for(key)}
