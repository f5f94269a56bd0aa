"""Counters of the engine's work.

The step thread writes them and any thread reads them without locks: plain counters are read one by one, collections are
copied atomically.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loragate.engine.metrics.adapters import AdapterCounts, AdapterMetrics
from loragate.engine.metrics.histogram import SECONDS, SIZES, Histogram
from loragate.engine.sequence.output import ErrorCode, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The work of one step."""

    sequences: int
    decode_rows: int
    prefill_tokens: int


@dataclass(eq=False, slots=True)
class _Completion:
    """A completion that was accepted and has not ended."""

    request: Request
    counts: AdapterCounts
    started: bool = False
    last_token: float | None = None


class EngineMetrics:
    """The engine's counters. Times are of time.monotonic().

    A completion ends in one of `finished`, `failed` or `aborted`; a request that is rejected before it becomes
    completions counts once in `failed`.
    """

    def __init__(self) -> None:
        self.started_at = time.time()
        self.steps = 0
        self.requests = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.spec_decode_draft_tokens = 0  # from prompt lookup
        self.spec_decode_accepted_tokens = 0
        self.aborted = 0
        self.finished: Counter[FinishReason] = Counter()
        self.failed: Counter[ErrorCode] = Counter()
        self.queue_seconds = Histogram(SECONDS)
        self.time_to_first_token_seconds = Histogram(SECONDS)
        self.inter_token_latency_seconds = Histogram(SECONDS)
        self.step_seconds = Histogram(SECONDS)
        self.step_tokens = Histogram(SIZES)
        self.step_sequences = Histogram(SIZES)
        self.step_prefill_tokens = Histogram(SIZES)
        self.adapters = AdapterMetrics()
        self._open: dict[tuple[int, int], _Completion] = {}  # by request object and index: clients may repeat ids

    def submitted(self, request: Request) -> None:
        """Count an accepted request."""
        counts = self.adapters.asked_for(request.adapter)
        self.requests += 1
        self.prompt_tokens += len(request.prompt)
        counts.requests += 1
        counts.prompt_tokens += len(request.prompt)
        for index in range(request.n):
            self._open[id(request), index] = _Completion(request, counts)

    def draft_checked(self, drafted: int, accepted: int) -> None:
        """Count the draft of one sequence in a step, and its accepted tokens."""
        self.spec_decode_draft_tokens += drafted
        self.spec_decode_accepted_tokens += accepted

    def left(self, request: Request, index: int) -> None:
        """Count an aborted completion."""
        self.aborted += 1
        del self._open[id(request), index]

    def scheduled(self, rows: Mapping[Sequence, int]) -> BatchSize:
        """Count a scheduled step, and return its size."""
        now = time.monotonic()
        prefill = 0
        for sequence, tokens in rows.items():
            if sequence.remaining > 1 or sequence.generated == 0:
                prefill += tokens
                self._start(self._open[id(sequence.request), sequence.index], now)
        total = sum(rows.values())
        self.steps += 1
        self.step_tokens.observe(total)
        self.step_sequences.observe(len(rows))
        self.step_prefill_tokens.observe(prefill)
        return BatchSize(len(rows), total - prefill, prefill)

    def emitted(self, outputs: Iterable[Output]) -> None:
        """Count the outputs of a step or a command."""
        now = time.monotonic()
        for output in outputs:
            key = id(output.request), output.index
            if output.token is not None:
                self._token(self._open[key], now)
            if output.error is not None:
                self.failed[output.error[0]] += 1
            elif output.finish is not None and output.finish is not FinishReason.ABORTED:  # `left` counts those
                self.finished[output.finish] += 1
            if output.finish is not None:
                self._open.pop(key, None)

    def open(self) -> Counter[AdapterKey | None]:
        """Return the number of open completions, in the batch and waiting, by adapter."""
        return Counter(completion.request.adapter for completion in self._open.copy().values())

    def _start(self, completion: _Completion, now: float) -> None:
        if not completion.started:
            completion.started = True
            waited = now - completion.request.received
            trace = completion.request.trace
            if trace is not None and trace.started_at is None:
                trace.started_at = now
            self.queue_seconds.observe(waited)
            completion.counts.started += 1
            completion.counts.queue_seconds += waited

    def _token(self, completion: _Completion, now: float) -> None:
        if completion.last_token is None:
            waited = now - completion.request.received
            self.time_to_first_token_seconds.observe(waited)
            completion.counts.first_tokens += 1
            completion.counts.time_to_first_token_seconds += waited
        else:
            self.inter_token_latency_seconds.observe(now - completion.last_token)
        completion.last_token = now
        completion.counts.generated_tokens += 1
        self.generated_tokens += 1
