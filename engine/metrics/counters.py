"""Counters and histograms of the engine's work, in all and by adapter.

The step thread writes them and any thread reads them without locks: plain counters are read one by one, collections are
copied atomically.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loragate.engine.sequence.output import ErrorCode, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SIZES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
MAX_ADAPTERS = 1024
"""Adapters counted individually. The one requested longest ago is evicted, and starts from zero when it returns."""


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """A histogram at one moment. `counts` has one bucket more than `bounds`, for larger values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """A histogram whose `bounds` are the buckets' inclusive upper ends, ascending.

    No lock: the counts are copied atomically, and the sum may be one observation ahead of them.
    """

    __slots__ = ("_counts", "_sum", "bounds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._sum += value
        self._counts[bisect_left(self.bounds, value)] += 1

    def read(self) -> HistogramCounts:
        return HistogramCounts(self.bounds, tuple(self._counts), self._sum)


@dataclass(slots=True)
class AdapterCounts:
    """Totals since the start, or since the adapter was last evicted from the counters."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    started: int = 0  # completions that entered the batch
    queue_seconds: float = 0.0  # of these completions
    first_tokens: int = 0  # completions with a token
    time_to_first_token_seconds: float = 0.0  # of these completions
    loads: int = 0


class AdapterMetrics:
    """Counters written by the step thread; `read` is thread-safe. The base model alone is the adapter None."""

    def __init__(self) -> None:
        self._counts: dict[AdapterKey | None, AdapterCounts] = {}  # least recently requested first

    def asked_for(self, key: AdapterKey | None) -> AdapterCounts:
        """Return the adapter's counts, and mark it as the most recently requested."""
        counts = self._counts.pop(key, None) or AdapterCounts()
        self._counts[key] = counts
        if len(self._counts) > MAX_ADAPTERS:
            del self._counts[next(iter(self._counts))]
        return counts

    def loaded(self, key: AdapterKey) -> None:
        """Count a load to the device; a pinned adapter is loaded without a request."""
        (self._counts.get(key) or self.asked_for(key)).loads += 1

    def read(self) -> dict[AdapterKey | None, AdapterCounts]:
        """Return the counts themselves, which continue to change."""
        return self._counts.copy()


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

    def started(self, request: Request, index: int) -> None:
        """Count a completion that entered the batch, for an engine whose steps are not scheduled here."""
        self._start(self._open[id(request), index], time.monotonic())

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
