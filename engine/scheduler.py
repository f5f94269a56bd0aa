"""Which tokens go into the next step: continuous batching (Orca, Yu et al., OSDI 2022) with chunked prefill
(Sarathi-Serve, Agrawal et al., arXiv:2403.02310) and preemption by recompute (vLLM, arXiv:2309.06180)."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loragate.engine.adapter_pool import AdapterPool
from loragate.engine.block_pool import BlockPool
from loragate.engine.sequence import AdapterKey, Sequence

OVERTAKE_STEPS = 32
"""Steps for which requests with a slot may overtake one that waits for a slot. After that nobody younger is
admitted, slots fall free, and its turn comes: `A, B, A, A, …` cannot starve B."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one step."""

    max_tokens: int
    max_sequences: int


class Scheduler:
    def __init__(self, limits: Limits, blocks: BlockPool, adapters: AdapterPool) -> None:
        self._limits = limits
        self._blocks = blocks
        self._adapters = adapters
        self.running: list[Sequence] = []  # oldest first
        self.waiting: deque[Sequence] = deque()  # oldest first
        self.preemptions = 0
        self._steps = 0

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def schedule(self) -> dict[Sequence, int]:
        """Choose the sequences of the next step and how many tokens each computes."""
        self._steps += 1
        self._blocks.begin_step()
        step = _Step(self._limits.max_tokens)
        for sequence in [s for s in self.running if s.remaining == 1]:
            self._schedule_running(sequence, step)
        for sequence in [s for s in self.running if s.remaining > 1]:
            self._schedule_running(sequence, step)
        self._admit(step)
        return step.rows

    def remove(self, sequence: Sequence) -> None:
        """A sequence ended, whichever way: free what it holds."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._free(sequence)
        self._adapters.forget(sequence)

    def find(self, matches: Callable[[Sequence], bool]) -> list[Sequence]:
        return [s for s in (*self.running, *self.waiting) if matches(s)]

    def waiting_for(self, key: AdapterKey) -> list[Sequence]:
        return [s for s in self.waiting if s.request.adapter == key]

    def _schedule_running(self, sequence: Sequence, step: "_Step") -> None:
        if step.budget == 0 or sequence not in self.running:  # preempted for an older one in this very step
            return
        self._blocks.reuse(sequence)
        if self._blocks.awaits(sequence):
            return
        tokens = min(sequence.remaining, step.budget)
        while not self._blocks.grow(sequence, sequence.computed + tokens):
            victim = max(self.running, key=lambda s: s.arrival)
            self._preempt(victim, step)
            if victim is sequence:
                return
        step.take(sequence, tokens)

    def _preempt(self, victim: Sequence, step: "_Step") -> None:
        step.give_back(victim)
        self.running.remove(victim)
        self._free(victim)
        self._requeue(victim)
        self.preemptions += 1

    def _requeue(self, sequence: Sequence) -> None:
        later = next((i for i, s in enumerate(self.waiting) if s.arrival > sequence.arrival), len(self.waiting))
        self.waiting.insert(later, sequence)

    def _admit(self, step: "_Step") -> None:
        blocked: Sequence | None = None
        for sequence in list(self.waiting):
            if step.budget == 0 or len(self.running) >= self._limits.max_sequences:
                return
            if blocked is not None and self._overdue(blocked):
                return
            if not self._blocks.fits(sequence):
                return  # by age: a long one is not overtaken by short ones for ever
            if self._blocks.awaits(sequence):
                continue
            if not self._lease(sequence):
                if blocked is None and sequence.request.adapter is not None and not self._has_slot(sequence):
                    blocked = sequence
                    if blocked.blocked_since is None:
                        blocked.blocked_since = self._steps
                continue
            self.waiting.remove(sequence)
            self.running.append(sequence)
            self._blocks.reuse(sequence)
            tokens = min(sequence.remaining, step.budget)
            grown = self._blocks.grow(sequence, sequence.computed + tokens)
            assert grown
            step.take(sequence, tokens)
        self.running.sort(key=lambda s: s.arrival)

    def _lease(self, sequence: Sequence) -> bool:
        key = sequence.request.adapter
        if key is None:
            return True
        sequence.lease = self._adapters.acquire(key)
        return sequence.lease is not None

    def _has_slot(self, sequence: Sequence) -> bool:
        key = sequence.request.adapter
        return key is None or self._adapters.want(key, sequence, overdue=self._overdue(sequence))

    def _overdue(self, sequence: Sequence) -> bool:
        return sequence.blocked_since is not None and self._steps - sequence.blocked_since > OVERTAKE_STEPS

    def _free(self, sequence: Sequence) -> None:
        self._blocks.release(sequence)
        sequence.computed = 0
        if sequence.lease is not None:
            self._adapters.release(sequence.lease)
            sequence.lease = None


class _Step:
    """Rows given out so far, and the budget that is left."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows: dict[Sequence, int] = {}

    def take(self, sequence: Sequence, tokens: int) -> None:
        self.rows[sequence] = tokens
        self.budget -= tokens

    def give_back(self, sequence: Sequence) -> None:
        self.budget += self.rows.pop(sequence, 0)


def decode_first(rows: Iterable[tuple[Sequence, int]]) -> list[tuple[Sequence, int]]:
    """The packed order of a step: single rows, then chunks; each sorted by slot so that segments are runs."""
    return sorted(rows, key=lambda item: (item[1] > 1, item[0].slot, item[0].arrival))
