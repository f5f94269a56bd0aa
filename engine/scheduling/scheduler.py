"""Which tokens go into the next step: continuous batching (Orca, Yu et al., OSDI 2022) with chunked prefill
(Sarathi-Serve, Agrawal et al., arXiv:2403.02310), preemption by recompute (vLLM, arXiv:2309.06180), and turns by
what each tenant was served (virtual token counters, Sheng et al., arXiv:2401.00588).

A sequence waits for a *slot* for its adapter, then for a *seat* with room for its prompt, then for *tokens* of a step.
Each is given to the tenant that was served least.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.token_cost import GENERATED_UNITS, PROMPT_UNITS
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.scheduling import preemption
from loragate.engine.scheduling.deadlines import Deadlines
from loragate.engine.scheduling.fair_queue import FairQueue, Lane
from loragate.engine.scheduling.overload import Overload, QueueBounds, QueueLoad
from loragate.engine.scheduling.preemption import Ticket
from loragate.engine.scheduling.reserved_seats import KeptSeats
from loragate.engine.scheduling.sequence_index import Roster
from loragate.engine.scheduling.slot_assignment import SlotTurns
from loragate.engine.scheduling.step_budget import StepBound, StepTimes, StepWork
from loragate.engine.scheduling.virtual_counters import Account, Ledger
from loragate.engine.sequence.output import Failure
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one step, and of the queue before it."""

    max_tokens: int
    max_sequences: int
    max_model_len: int
    step_seconds: float | None = None  # of a step with prefill while others decode; None: no such bound
    queue: QueueBounds = field(default_factory=QueueBounds)


class Scheduler:
    def __init__(self, limits: Limits, blocks: BlockPool, adapters: AdapterPool) -> None:
        self._limits = limits
        self._blocks = blocks
        self._adapters = adapters
        self._ledger = Ledger()
        self._overload = Overload(limits.queue, self._ledger)
        self._times = StepTimes(limits.step_seconds)
        self._bound = StepBound(limits.max_tokens)
        self._tickets: dict[Sequence, Ticket] = {}
        self._roster = Roster()
        self._deadlines = Deadlines()
        self._kept = KeptSeats()
        self._steps = 0
        self.work = StepWork()  # of the step that was scheduled last
        self.running: list[Sequence] = []
        self.waiting = FairQueue()
        self.preemptions = 0
        self._slots = SlotTurns(adapters, self.waiting)

    def refusal(self, request: Request, now: float) -> Failure | None:
        """Why a request cannot be taken in, if so; `now` is a time.monotonic()."""
        deadline = request.share.deadline
        patience = None if deadline is None else self._latest_start(request, deadline) - now
        return self._overload.refusal(request, len(self.waiting), self._free_seats, patience)

    def add(self, sequence: Sequence) -> None:
        account = self._ledger.enter(sequence.request.share)
        ticket = self._tickets[sequence] = Ticket(sequence, account, self._overload.expected_units(sequence))
        self._roster.add(sequence)
        deadline = sequence.request.share.deadline
        if deadline is not None:
            self._deadlines.add(sequence, self._latest_start(sequence.request, deadline))
        self._wait(ticket)

    def late(self, now: float) -> list[tuple[Sequence, Failure]]:
        """Those of the waiting for whom nothing was done yet, and whose deadline cannot be met any more."""
        return [
            (sequence, self._overload.late(sequence.request))
            for sequence in self._deadlines.passed(now)
            if sequence in self.waiting and not self._roster.party(sequence).started
        ]

    def load(self) -> QueueLoad:
        """What waits now; any thread may ask."""
        return self._overload.load()

    def accounts(self) -> list[Account]:
        """Of the tenants with open sequences, the longest queues first; any thread may ask."""
        active = (account for account in self._ledger.all() if account.sequences)
        return sorted(active, key=lambda account: (-account.waiting, -account.seated, account.tenant_id))

    @property
    def next_deadline(self) -> float | None:
        """When to ask for the late ones again, as a time.monotonic()."""
        return self._deadlines.next

    def schedule(self) -> dict[Sequence, int]:
        """Choose the sequences of the next step and how many tokens each computes."""
        self._steps += 1
        self._slots.begin_step()
        self._blocks.begin_step()
        self._give_slots(keep=self._give_seats(hold=True))
        if not self.running:  # who was held back for another's slot need not be if that came to nothing
            self._slots.release(self._give_seats(hold=False))
        rows = self._give_tokens()
        decoding = sum(sequence.remaining == 1 for sequence in rows)
        prefill = sum(tokens for sequence, tokens in rows.items() if sequence.remaining > 1)
        self.work = StepWork(decoding, prefill, self._charge(rows))
        return rows

    def measured(self, work: StepWork, seconds: float) -> None:
        """A step took so long."""
        self._times.observe(work.decoding, work.prefill, seconds)
        self._bound.went_well()
        if self.waiting:
            self._overload.served(work.served, seconds)

    def ran_out(self, rows: dict[Sequence, int]) -> None:
        """Of the device's memory: nothing of this step was computed, and steps are smaller for a while."""
        self._bound.ran_out(sum(rows.values()))
        for sequence in rows:
            sequence.draft = []

    def remove(self, sequence: Sequence) -> None:
        """A sequence ended, whichever way: free what it holds."""
        ticket = self._tickets.pop(sequence)
        if ticket.seated:
            self._keep_seat(ticket)
            self._unseat(ticket)
        else:
            self._stop_waiting(ticket)
        self._adapters.forget(sequence)
        self._ledger.leave(ticket.account)
        self._deadlines.discard(sequence)
        self._roster.remove(sequence)
        if sequence.generated:
            self._overload.finished(sequence.generated)

    def holds(self, sequence: Sequence) -> bool:
        """It was added and has not ended."""
        return sequence in self._tickets

    def find(self, session_id: int, request_id: int | None) -> list[Sequence]:
        """The sequences of a request, or of a whole session when `request_id` is None."""
        return self._roster.find(session_id, request_id)

    def priced(self, key: AdapterKey, token_cost: float) -> None:
        """What the adapter's tokens cost, see service_cost."""
        self._slots.price(key, token_cost)

    def waiting_for(self, key: AdapterKey) -> list[Sequence]:
        return self.waiting.waiting_for(key)

    def _latest_start(self, request: Request, deadline: float) -> float:
        return deadline - len(request.prompt) * self._times.seconds_per_prompt_token

    @property
    def _free_seats(self) -> int:
        return self._limits.max_sequences - len(self.running)

    @property
    def _by_turn(self) -> list[Ticket]:
        """The seated, least served first."""
        return sorted((self._tickets[sequence] for sequence in self.running), key=lambda ticket: ticket.turn)

    def _give_seats(self, *, hold: bool) -> Sequence | None:
        """By turn. Nobody overtakes the first who lacks a seat or blocks, or short prompts could starve a long one:
        it is returned, with a hold on its adapter."""
        aside: list[Lane] = []
        short_of_room = None
        self._kept.expire(self._steps if self.running else math.inf)  # alone nobody waits for a guest
        self._return_kept_seats()
        while (lane := self.waiting.next_for_a_seat()) is not None:
            if not self._slots.lease(lane) or (hold and self._slots.held_back(lane)):
                self._slots.release(lane.head)
                if lane.turns is self.waiting.ready:
                    lane.turns.discard(lane)
                    aside.append(lane)
                continue
            victims = self._victims(lane)
            if victims is None:
                short_of_room = lane.head
                break
            self._seat(lane, victims)
        for lane in aside:
            lane.turns.add(lane)
        return short_of_room

    def _return_kept_seats(self) -> None:
        for tenant_id in self._kept.tenants:
            account = self._ledger.find(tenant_id)
            lane = None if account is None else self.waiting.next_of(account)
            if lane is not None and self._slots.lease(lane):
                self._kept.give_back(tenant_id)
                victims = self._victims(lane)
                if victims is None:
                    self._slots.release(lane.head)
                else:
                    self._seat(lane, victims, let_in=True)

    def _keep_seat(self, ticket: Ticket) -> None:
        """Unless the tenant has had more than others by now."""
        account = ticket.account
        ahead = account.counter - self._ledger.level
        if ticket.let_in and account.sequences == 1 and ahead * account.weight < preemption.QUANTUM:
            self._kept.keep(account.tenant_id, self._steps, len(ticket.sequence.blocks))

    def _victims(self, lane: Lane) -> list[Ticket] | None:
        """Who gives way to the lane's head; None if it must wait for a seat or blocks."""
        seats = self._free_seats - len(self._kept)
        spoken_for = self._kept.blocks + sum(map(self._blocks_to_come, self.running))
        missing = self._blocks.shortage(lane.head, spoken_for)
        if seats > 0 and missing <= 0:
            return []
        return preemption.for_room(self._by_turn, lane.account, 1 - seats, missing)

    def _blocks_to_come(self, sequence: Sequence) -> int:
        """What a seated sequence still needs for its prompt, and one to grow into."""
        return max(0, self._blocks.blocks_for(len(sequence.tokens)) - len(sequence.blocks)) + 1

    def _seat(self, lane: Lane, victims: list[Ticket], *, let_in: bool = False) -> None:
        for victim in victims:
            self._preempt(victim)
        ticket = self._tickets[lane.head]
        ticket.let_in = let_in or bool(victims)
        lane.blocked_since = None
        self._stop_waiting(ticket)
        ticket.cost = self._slots.token_cost(lane.key)
        ticket.seated = True
        ticket.account.seated += 1
        ticket.account.pending += ticket.pending
        self.running.append(ticket.sequence)

    def _unseat(self, ticket: Ticket) -> None:
        sequence, account = ticket.sequence, ticket.account
        self.running.remove(sequence)
        ticket.seated = False
        account.seated -= 1
        account.pending -= ticket.pending
        self.waiting.moved(account)
        self._blocks.release(sequence)
        sequence.computed = 0
        self._slots.release(sequence)

    def _preempt(self, ticket: Ticket) -> None:
        self._unseat(ticket)
        self._wait(ticket)
        self.preemptions += 1

    def _wait(self, ticket: Ticket) -> None:
        key = ticket.sequence.request.adapter
        ready = key is None or self._slots.resident(key)
        lane = self.waiting.add(ticket.sequence, ticket.account, ready=ready)
        self._slots.wait(lane)
        ticket.account.backlog += ticket.expected

    def _stop_waiting(self, ticket: Ticket) -> None:
        self.waiting.remove(ticket.sequence)
        ticket.account.backlog -= ticket.expected

    def _give_slots(self, keep: Sequence | None) -> None:
        """By turn, until none is to be had. `keep` only lacks room: it loses its slot to none with a later turn."""
        blocked = self.waiting.blocked.first()
        if keep is not None and blocked is not None and blocked.goes_before(self.waiting.lane_of(keep)):
            self._slots.release(keep)
        self._hand_out_slots()
        self._slots.release(keep)

    def _hand_out_slots(self) -> None:
        for turns in (self.waiting.blocked, self.waiting.unread):
            while (lane := turns.first()) is not None:
                if self._slots.promise(lane) or self._clear_slot(lane):
                    self.waiting.place(lane, self.waiting.ready)
                elif lane.turns is turns:
                    break

    def _clear_slot(self, lane: Lane) -> bool:
        """Let others give way to the lane's adapter, if they hold too much."""
        if not self._slots.may_clear(lane):
            return False
        while victims := preemption.for_slot([self._tickets[s] for s in self.running], lane.account):
            self._slots.cleared(lane)
            for victim in victims:
                self._preempt(victim)
            if self._slots.promise(lane):
                return True
        return False

    def _give_tokens(self) -> dict[Sequence, int]:
        """A row to each that decodes, and what the step has time and rows for to prompts, least served first. If
        blocks run out, those whose turn is last give theirs up."""
        by_turn = deque(ticket.sequence for ticket in self._by_turn)
        most = self._bound.rows
        decoding = set(islice((s for s in by_turn if s.remaining == 1 and not self._has_all(s)), most))
        prefill = self._times.prefill_budget(most - len(decoding), len(decoding))
        rows: dict[Sequence, int] = {}
        while by_turn:
            sequence = by_turn.popleft()
            if self._has_all(sequence):
                continue
            self._blocks.reuse(sequence)
            tokens = 1 if sequence in decoding else min(sequence.remaining, prefill)
            if tokens and not self._blocks.awaits(sequence) and self._grow(sequence, tokens, by_turn):
                prefill -= 0 if sequence in decoding else tokens
                rows[sequence] = tokens
        for sequence in decoding & rows.keys():
            prefill -= self._draft(sequence, rows, prefill)
        return rows

    def _has_all(self, sequence: Sequence) -> bool:
        """It ends as soon as its last token is read."""
        full = sequence.generated >= sequence.request.sampling.max_tokens
        return sequence.unread and (full or len(sequence.tokens) >= self._limits.max_model_len)

    def _draft(self, sequence: Sequence, rows: dict[Sequence, int], room: int) -> int:
        """Guesses get what rows and blocks nobody else wants. Returns how many there are."""
        if sequence.lookup is None or room <= 0:
            return 0
        draft = sequence.guess(min(room, self._limits.max_model_len - len(sequence.tokens) - 1))
        if draft and self._blocks.grow(sequence, sequence.computed + 1 + len(draft)):
            sequence.draft = draft
            rows[sequence] += len(draft)
        return len(sequence.draft)

    def _grow(self, sequence: Sequence, tokens: int, later: deque[Sequence]) -> bool:
        while not self._blocks.grow(sequence, sequence.computed + tokens):
            victim = later.pop() if later else sequence
            self._preempt(self._tickets[victim])
            if victim is sequence:
                return False
        return True

    def _charge(self, rows: dict[Sequence, int]) -> float:
        """Tokens are paid for when they are first computed: not when found cached, nor again after a preemption.
        Returns the units of all."""
        served = 0.0
        for sequence, tokens in rows.items():
            ticket = self._tickets[sequence]
            computed = sequence.computed + tokens
            paid, to_pay = ticket.charged, min(computed, sequence.prompt_length)
            units = PROMPT_UNITS * max(0, to_pay - max(paid, sequence.computed))
            if computed >= len(sequence.tokens) and sequence.pooled is None:
                units += GENERATED_UNITS * (computed - len(sequence.tokens) + 1)  # guesses too, right or wrong
            pending = ticket.pending
            ticket.charged = max(paid, to_pay)
            ticket.account.pending -= pending - ticket.pending
            ticket.account.charge(units * ticket.cost)
            served += units * ticket.cost
            self._roster.party(sequence).started = True
        return served
