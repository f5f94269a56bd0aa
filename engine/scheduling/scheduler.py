"""Selection of the tokens of the next step: continuous batching (Orca, Yu et al., OSDI 2022) with chunked prefill
(Sarathi-Serve, Agrawal et al., arXiv:2403.02310), preemption by recompute (vLLM, arXiv:2309.06180), and fairness among
tenants (virtual token counters, Sheng et al., arXiv:2401.00588).

A sequence waits for a *slot* for its adapter, then for a *seat* with room for its prompt, then for *tokens* of a step.
Each is given to the tenant that has received the least service.
"""

from collections import deque
from dataclasses import dataclass, field

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.token_cost import GENERATED_UNITS, PROMPT_UNITS
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.scheduling import preemption
from loragate.engine.scheduling.batch_lane import BatchLane
from loragate.engine.scheduling.fair_pace import FairPace
from loragate.engine.scheduling.fair_queue import AdapterQueue, FairQueue
from loragate.engine.scheduling.overload import Deadlines, Overload, QueueBounds, QueueLoad
from loragate.engine.scheduling.preemption import ScheduledSequence
from loragate.engine.scheduling.seat_allocator import SeatAllocator
from loragate.engine.scheduling.sequence_index import SequenceIndex
from loragate.engine.scheduling.slot_assignment import SlotAssignment
from loragate.engine.scheduling.step_budget import StepBound, StepTimes, StepWork
from loragate.engine.scheduling.virtual_counters import LaneCounters, TenantCounter
from loragate.engine.sequence.output import Failure
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one step, and of the queue before it."""

    max_tokens: int
    max_sequences: int
    max_model_len: int
    step_seconds: float | None = None  # of a step with prefill while others decode; None means no bound
    max_slowdown: float | None = None  # of a step that tenants share, relative to one with one row; None: no bound
    batch_seconds: float | None = None  # of a step with rows of batches beside others; None: as without them
    queue: QueueBounds = field(default_factory=QueueBounds)


class Scheduler:
    """The waiting and running sequences, and the choice of those that the next step computes."""

    def __init__(self, limits: Limits, blocks: BlockPool, adapters: AdapterPool) -> None:
        self._limits = limits
        self._blocks = blocks
        self._adapters = adapters
        self._counters = LaneCounters()
        self._overload = Overload(limits.queue, self._counters.interactive)
        self._batch_overload = Overload(limits.queue, self._counters.batches)
        self.batch_lane = BatchLane(limits.batch_seconds)
        self._times = StepTimes(limits.step_seconds)
        self.pace = FairPace(limits.max_slowdown)
        self._bound = StepBound(limits.max_tokens)
        self._scheduled: dict[Sequence, ScheduledSequence] = {}
        self._index = SequenceIndex()
        self._deadlines = Deadlines()
        self.work = StepWork()  # of the step that was scheduled last
        self.waiting = FairQueue()
        self._slots = SlotAssignment(adapters, self.waiting)
        self.seats = SeatAllocator(
            max_sequences=limits.max_sequences,
            scheduled=self._scheduled,
            waiting=self.waiting,
            counters=self._counters.interactive,
            blocks=blocks,
            slots=self._slots,
        )
        self.running = self.seats.running

    @property
    def preemptions(self) -> int:
        return self.seats.preemptions

    def rejection(self, request: Request, now: float) -> Failure | None:
        """Return why a new request must be rejected, or None; `now` is a time.monotonic()."""
        if request.share.batch:
            return self._batch_overload.rejection(request, len(self.waiting), self.seats.free, None)
        deadline = request.share.deadline
        max_wait = None if deadline is None else self._latest_start(request, deadline) - now
        return self._overload.rejection(request, self._interactive_waiting, self._free_seats, max_wait)

    def add(self, sequence: Sequence) -> None:
        tenant = self._counters.enter(sequence.request.share, sequence.request.session_id)
        entry = ScheduledSequence(sequence, tenant, self._overload.expected_units(sequence))
        self._scheduled[sequence] = entry
        self._index.add(sequence)
        deadline = sequence.request.share.deadline
        if deadline is not None:
            self._deadlines.add(sequence, self._latest_start(sequence.request, deadline))
        self.seats.enqueue(entry)

    def expired(self, now: float) -> list[tuple[Sequence, Failure]]:
        """Return waiting sequences without any work done whose deadline can no longer be met, each of them once."""
        return [
            (sequence, self._overload.missed_deadline(sequence.request))
            for sequence in self._deadlines.pop_expired(now)
            if sequence in self.waiting and not self._index.group(sequence).started
        ]

    def load(self) -> QueueLoad:
        """Return the current load of the queue. Thread-safe."""
        return self._overload.load()

    def served(self) -> dict[str, float]:
        """Return the units of tenants that were served since the last call. Thread-safe for one reader."""
        return self._counters.interactive.served.changes()

    def tenants(self) -> list[TenantCounter]:
        """Return the tenants with open sequences, those with the longest queues first. Thread-safe."""
        return self._counters.interactive.open()

    @property
    def next_deadline(self) -> float | None:
        """When to call `expired` next, as a time.monotonic()."""
        return self._deadlines.next

    def schedule(self) -> dict[Sequence, int]:
        """Choose the sequences of the next step, and how many tokens each of them computes."""
        self.seats.begin_step()
        self._slots.begin_step()
        self._blocks.begin_step()
        self._give_slots(keep=self.seats.give_seats(hold=True))
        if not self.running:  # also admit sequences that were held back in favour of a blocked adapter
            self._slots.release(self.seats.give_seats(hold=False))
        rows = self._give_tokens()
        decoding = sum(sequence.remaining == 1 for sequence in rows)
        prefill = sum(tokens for sequence, tokens in rows.items() if sequence.remaining > 1)
        scored = sum(len(s.scored_states(s.computed, s.computed + tokens)) for s, tokens in rows.items())
        batches_only = all(self._scheduled[sequence].tenant.batch for sequence in rows)
        self.work = StepWork(decoding, prefill, scored, self._charge(rows), batches_only)
        return rows

    def record_step(self, work: StepWork, seconds: float) -> None:
        """Record the duration of a step."""
        if not (work.batches_only and work.decoding):
            self._times.observe(work.decoding, work.prefill, seconds, work.scored)
        if not work.prefill:
            self.pace.observe(work.decoding, seconds)
        if not work.scored:
            self.batch_lane.observe(work.decoding, work.prefill, seconds)
        self._bound.record_success()
        if self._interactive_waiting:
            self._overload.record_service(work.served, seconds)

    def record_out_of_memory(self, rows: dict[Sequence, int]) -> None:
        """Record that a step exceeded the device's memory and computed nothing; steps are smaller for a while."""
        self._bound.record_out_of_memory(sum(rows.values()))
        for sequence in rows:
            sequence.draft = []

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that ended, and free what it holds."""
        entry = self._scheduled.pop(sequence)
        self.seats.remove(entry)
        self._adapters.discard(sequence)
        self._counters.leave(entry.tenant)
        self._deadlines.discard(sequence)
        self._index.remove(sequence)
        if sequence.generated:
            self._overload.record_length(sequence.generated)

    def holds(self, sequence: Sequence) -> bool:
        """Return whether the sequence was added and has not ended."""
        return sequence in self._scheduled

    def find(self, session_id: int, request_id: int | None) -> list[Sequence]:
        """Return the sequences of a request, or of a whole session when `request_id` is None."""
        return self._index.find(session_id, request_id)

    def set_token_cost(self, key: AdapterKey, token_cost: float) -> None:
        """Set the token_cost of the adapter's tokens, see `adapters.token_cost`."""
        self._slots.set_token_cost(key, token_cost)

    def waiting_for(self, key: AdapterKey) -> list[Sequence]:
        return self.waiting.waiting_for(key)

    @property
    def _interactive_waiting(self) -> int:
        return len(self.waiting) - self._counters.batches.waiting

    @property
    def _free_seats(self) -> int:
        """The seats that are free, or free as soon as others than batches need them."""
        return self.seats.free + sum(tenant.seated for tenant in self._counters.batches.all())

    def _latest_start(self, request: Request, deadline: float) -> float:
        return deadline - len(request.prompt) * self._times.seconds_per_prompt_token

    def _give_slots(self, keep: Sequence | None) -> None:
        """Give slots in fair order while there are any.

        `keep` lacks only a seat or blocks: it loses its slot only to queues that come before it.
        """
        blocked = self.waiting.blocked.first()
        if keep is not None and blocked is not None and blocked.goes_before(self.waiting.queue_for(keep)):
            self._slots.release(keep)
        self._assign_slots()
        self._slots.release(keep)

    def _assign_slots(self) -> None:
        for fair_order in (self.waiting.blocked, self.waiting.unread):
            while (queue := fair_order.first()) is not None:
                if self._slots.request_load(queue) or self._clear_slot(queue):
                    self.waiting.move(queue, self.waiting.ready)
                elif queue.fair_order is fair_order:
                    break

    def _clear_slot(self, queue: AdapterQueue) -> bool:
        """Preempt others for the queue's adapter if they hold too much, and return whether it has a slot now."""
        if not self._slots.may_preempt_for(queue):
            return False
        while victims := preemption.victims_for_slot([self._scheduled[s] for s in self.running], queue.tenant):
            self._slots.record_preemption(queue)
            for victim in victims:
                self.seats.preempt(victim)
            if self._slots.request_load(queue):
                return True
        return False

    def _give_tokens(self) -> dict[Sequence, int]:
        """Give a row to each decoding sequence, and the remaining time and rows to prompts, in fair order.

        If blocks run out, the sequences that come last give theirs up. Those of batches come behind all others, and get
        what the batch lane leaves them.
        """
        entries = self.seats.in_order
        in_order = deque(entry.sequence for entry in entries)
        entries = [entry for entry in entries if not entry.tenant.batch]
        max_rows = self._bound.rows
        shared = len({entry.tenant for entry in entries}) > 1
        decoding, waiting = self._choose_decoding(entries, max_rows, shared=shared)
        left = self.pace.seconds_for_prefill(len(decoding)) if shared else None
        prefill = self._times.prefill_budget(max_rows - len(decoding), len(decoding), left)
        scoring = self._times.scoring_budget(len(decoding), left)
        rows: dict[Sequence, int] = {}
        while in_order and not in_order[0].request.share.batch:
            sequence = in_order.popleft()
            if sequence in waiting or self._is_complete(sequence):
                continue
            self._blocks.reuse(sequence)
            tokens = 1 if sequence in decoding else min(sequence.scorable_tokens(scoring), max(0, prefill))
            if tokens and not self._blocks.awaits(sequence) and self._grow(sequence, tokens, in_order):
                scored = len(sequence.scored_states(sequence.computed, sequence.computed + tokens))
                scoring -= scored
                prefill -= 0 if sequence in decoding else tokens
                prefill -= self._times.prefill_equivalent(scored) if decoding else 0
                rows[sequence] = tokens
        for sequence in decoding & rows.keys():
            prefill -= self._add_draft(sequence, rows, prefill)
        self._give_batch_tokens(rows, in_order, max_rows)
        return rows

    def _give_batch_tokens(self, rows: dict[Sequence, int], batches: deque[Sequence], max_rows: int) -> None:
        """Add tokens of batches to a step, in fair order, as far as the batch lane has room."""
        decoding = sum(sequence.remaining == 1 for sequence in rows)
        room = self.batch_lane.room(decoding, sum(rows.values()) - decoding)
        scoring = 0 if rows else self._times.scoring_budget(0)
        left = max_rows - sum(rows.values())
        while batches:
            sequence = batches.popleft()
            if self._is_complete(sequence):
                continue
            self._blocks.reuse(sequence)
            decodes = sequence.remaining == 1
            tokens = min(left, room.rows(1) if decodes else room.prompt(sequence.scorable_tokens(scoring)))
            if tokens > 0 and not self._blocks.awaits(sequence) and self._grow(sequence, tokens, batches):
                scoring -= len(sequence.scored_states(sequence.computed, sequence.computed + tokens))
                room.take(tokens, decodes=decodes)
                left -= tokens
                rows[sequence] = tokens

    def _choose_decoding(
        self, entries: list[ScheduledSequence], max_rows: int, *, shared: bool
    ) -> tuple[set[Sequence], set[Sequence]]:
        """Return the sequences that decode in this step, and those that could but wait for a later one."""
        able = [e for e in entries if e.sequence.remaining == 1 and not self._is_complete(e.sequence)]
        if shared:
            decoding = self.pace.choose(able, max_rows, prefill=len(able) < len(entries))
        else:
            decoding = {entry.sequence for entry in able[:max_rows]}
        return decoding, {entry.sequence for entry in able} - decoding

    def _is_complete(self, sequence: Sequence) -> bool:
        """Return whether the sequence ends as soon as its last token is read."""
        full = sequence.generated >= sequence.request.sampling.max_tokens
        return sequence.unread and (full or len(sequence.tokens) >= self._limits.max_model_len)

    def _add_draft(self, sequence: Sequence, rows: dict[Sequence, int], room: int) -> int:
        """Add draft tokens on rows and blocks that no other sequence needs, and return their number."""
        if sequence.lookup is None or room <= 0:
            return 0
        draft = sequence.propose_draft(min(room, self._limits.max_model_len - len(sequence.tokens) - 1))
        if draft and self._blocks.grow(sequence, sequence.computed + 1 + len(draft)):
            sequence.draft = draft
            rows[sequence] += len(draft)
        return len(sequence.draft)

    def _grow(self, sequence: Sequence, tokens: int, later: deque[Sequence]) -> bool:
        while not self._blocks.grow(sequence, sequence.computed + tokens):
            victim = later.pop() if later else sequence
            self.seats.preempt(self._scheduled[victim])
            if victim is sequence:
                return False
        return True

    def _charge(self, rows: dict[Sequence, int]) -> float:
        """Charge tenants for the tokens of a step, and return the units of all.

        A token is charged when it is first computed: not when it is found in the cache, nor again after a preemption.
        """
        served = 0.0
        for sequence, tokens in rows.items():
            entry = self._scheduled[sequence]
            computed = sequence.computed + tokens
            paid, to_pay = entry.charged, min(computed, sequence.prompt_length)
            units = PROMPT_UNITS * max(0, to_pay - max(paid, sequence.computed))
            if computed >= len(sequence.tokens) and sequence.generates:
                units += GENERATED_UNITS * (computed - len(sequence.tokens) + 1)  # draft tokens too, right or wrong
            pending = entry.pending
            entry.charged = max(paid, to_pay)
            entry.tenant.pending -= pending - entry.pending
            self._counters.charge(entry.tenant, units * entry.token_cost)
            served += units * entry.token_cost
            self._index.group(sequence).started = True
        return served
