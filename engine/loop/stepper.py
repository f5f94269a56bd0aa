"""Steps from their launch to what came out: runs the model, samples, reads, and says so.

Where steps run late, one is launched before the tokens of the one before are read: its rows begin with tokens that are
still on the device, and meanwhile the host reads them, ends who is to end, and works out what the next tokens are drawn
from. Everything on the device happens in the order of the launches, so whatever a step reads or writes may be given to
others as soon as it is launched.
"""

import logging
import time
import traceback
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from loragate.engine.adapters.pool import AdapterPool, StaleSlot
from loragate.engine.execution.last_tokens import expect_tokens
from loragate.engine.execution.model_runner import ModelRunner
from loragate.engine.execution.readback import Readback
from loragate.engine.grammar.compiler import GrammarCompiler
from loragate.engine.grammar.matcher import GrammarFailed
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.in_flight import Draw, Embeddings, Flight, Turn, Vector
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.metrics.counters import EngineMetrics
from loragate.engine.metrics.timeline import Timeline
from loragate.engine.sampling.grammar_mask import token_mask
from loragate.engine.sampling.random_sampling import rows_of
from loragate.engine.sampling.sampler import Sampled, choose
from loragate.engine.scheduling.scheduler import Scheduler
from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.sequence import Sequence

log = logging.getLogger(__name__)


class Stepper:
    """With `late`, what a step gave is read after the next one was launched; `land` reads it when there is none."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        blocks: BlockPool,
        adapters: AdapterPool,
        grammars: GrammarCompiler,
        limits: ModelLimits,
        metrics: EngineMetrics,
        timeline: Timeline,
        *,
        late: bool,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._blocks = blocks
        self._adapters = adapters
        self._grammars = grammars
        self._limits = limits
        self._metrics = metrics
        self._timeline = timeline
        self.late = late
        self._flight: Flight | None = None
        self._landed = 0.0  # when the last one was read

    @property
    def flying(self) -> bool:
        """A step is to be read."""
        return self._flight is not None

    def step(self, scheduled: dict[Sequence, int]) -> list[Output]:
        """Launch a step. Returns what was read meanwhile."""
        began, work = time.perf_counter(), self._scheduler.work
        outputs = [self._fail(s, ErrorCode.INTERNAL, why) for s, why in self._stale(scheduled)]
        alive = {s: tokens for s, tokens in scheduled.items() if s.blocks}
        if not alive:
            return outputs + self.land()
        try:
            logits, sampled = self._runner.execute(alive)
        except Exception as error:
            outputs += self.land()
            return outputs + self._failed(error, alive)
        self._timeline.ended("forward")
        if self._flight is not None:
            outputs += self.land()
            self._timeline.ended("read")
        rows = self._held(alive)
        try:
            embeddings, draw = self._embed(rows), self._draw(logits, _first_turns(sampled, rows))
        except Exception as error:
            return outputs + self._failed(error, alive)
        self._flight = Flight(rows, logits, draw, embeddings, work, began)
        self._account(rows)
        if not self.late or any(sequence.guesses for sequence, _ in draw.turns):
            outputs += self.land()
        self._timeline.ended("sample")
        return outputs

    def land(self) -> list[Output]:
        """Read the step that was launched last, unless it was."""
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        try:
            embeddings, choices = flight.embeddings.read(), flight.draw.read()
        except Exception as error:
            return self._broken(error, flight.rows)
        outputs = [self._embedded(s, vector) for s, vector in embeddings if self._scheduler.holds(s)]
        turns = flight.draw.turns
        while turns:
            each = zip(turns, choices, strict=True)
            outputs += [self._advance(s, choice) for (s, _), choice in each if self._scheduler.holds(s)]
            turns = self._guessed_right(turns)
            try:
                choices = self._draw(flight.logits, turns).read() if turns else []
            except Exception as error:
                return outputs + self._broken(error, [sequence for sequence, _ in turns])
        now = time.perf_counter()
        self._scheduler.measured(flight.work, now - max(flight.began, self._landed))
        self._landed = now
        return outputs

    def refuse(self, sequence: Sequence, failure: Failure) -> Output:
        """End a sequence without an answer."""
        self._scheduler.remove(sequence)
        return Output(sequence.request, sequence.index, finish=FinishReason.ERROR, error=failure)

    def _held(self, rows: Mapping[Sequence, int]) -> dict[Sequence, int]:
        """Without those that ended meanwhile."""
        return {s: tokens for s, tokens in rows.items() if self._scheduler.holds(s)}

    def _failed(self, error: Exception, rows: dict[Sequence, int]) -> list[Output]:
        """A step could not be launched. Some of its sequences may have ended meanwhile."""
        if not isinstance(error, torch.OutOfMemoryError):
            return self._broken(error, rows)
        log.warning("a step over %d tokens of %d sequences: %s", sum(rows.values()), len(rows), error)
        traceback.clear_frames(error.__traceback__)  # which hold what the step had computed
        return self._ran_out(rows)

    def _broken(self, error: Exception, rows: Collection[Sequence]) -> list[Output]:
        """What was to be computed for these cannot be had."""
        log.error("a step over %d sequences failed%s", len(rows), _traces(rows), exc_info=error)
        self._runner.check_device()
        return [
            self._fail(s, ErrorCode.INTERNAL, "the engine failed in this step")
            for s in rows
            if self._scheduler.holds(s)
        ]

    def _ran_out(self, rows: dict[Sequence, int]) -> list[Output]:
        """Of the device's memory: smaller steps are tried, down to a single token. Who has no room even for that has
        no room at all."""
        torch.cuda.empty_cache()
        if sum(rows.values()) > 1:
            self._scheduler.ran_out(rows)
            return []
        return [self._fail(s, ErrorCode.INTERNAL, "the device has not enough memory for it") for s in self._held(rows)]

    def _draw(self, logits: Tensor, turns: list[Turn]) -> Draw:
        """The next token of each sequence, from the row of the logits that belongs to it."""
        sequences, rows = [sequence for sequence, _ in turns], [row for _, row in turns]
        of_turns = rows_of(logits, rows) if rows else logits[:0]
        chosen = choose(of_turns, sequences, self._limits.eos, token_mask(sequences, self._grammars))
        readback = Readback(chosen.tensors, self._runner.device)
        self._runner.last.keep(chosen.tokens)
        expect_tokens(sequences)
        return Draw(turns, chosen, readback)

    def _embed(self, rows: dict[Sequence, int]) -> Embeddings:
        ended = {s: s.pooled for s, tokens in rows.items() if s.pooled is not None and tokens == s.remaining}
        return Embeddings(list(ended), Readback([p.mean() for p in ended.values()], self._runner.device))

    def _account(self, rows: dict[Sequence, int]) -> None:
        """All rows are computed by the time that others can use what they left. Their tokens are known."""
        for sequence, tokens in rows.items():
            sequence.computed += tokens - len(sequence.draft)
            self._blocks.publish(sequence)

    def _guessed_right(self, turns: list[Turn]) -> list[Turn]:
        """Those whose token was what their draft said, with the row that was computed for it. The others' drafts are
        done with; what was computed for them lies behind their tokens and is overwritten."""
        right = []
        for sequence, row in turns:
            accepted = sequence.accepted
            if sequence.blocks and accepted < len(sequence.draft) and sequence.tokens[-1] == sequence.draft[accepted]:
                sequence.accepted += 1
                sequence.computed += 1
                right.append((sequence, row + 1))
            elif sequence.draft:
                self._metrics.judged(len(sequence.draft), accepted)
                sequence.judge()
                if sequence.blocks:
                    self._blocks.publish(sequence)
        return right

    def _stale(self, scheduled: dict[Sequence, int]) -> list[tuple[Sequence, str]]:
        stale = []
        for sequence in scheduled:
            if sequence.lease is not None:
                try:
                    self._adapters.check(sequence.lease)
                except StaleSlot as error:
                    log.error("refusing to decode with another adapter's weights: %s", error)
                    sequence.lease = None
                    stale.append((sequence, "its adapter's slot was given away"))
        return stale

    def _advance(self, sequence: Sequence, choice: Sampled) -> Output:
        """The token that was expected is there."""
        assert sequence.unread
        del sequence.tokens[-1]
        if choice.token is None:
            return self._non_finite(sequence)
        try:
            if sequence.matcher is not None:
                sequence.matcher.advance(choice.token)
        except GrammarFailed as error:
            return self._fail(sequence, ErrorCode.INVALID_REQUEST, f"the grammar cannot be followed further: {error}")
        cached_tokens = sequence.cached_tokens if sequence.generated == 0 else 0
        sequence.tokens.append(choice.token)
        finish = self._limits.finish(sequence, choice.token)
        if finish is not None:
            self._scheduler.remove(sequence)
        return Output(
            sequence.request, sequence.index, choice.token, choice.logprob, finish, cached_tokens=cached_tokens
        )

    def _embedded(self, sequence: Sequence, embedding: Vector | None) -> Output:
        if embedding is None:
            return self._non_finite(sequence)
        self._scheduler.remove(sequence)
        return Output(
            sequence.request,
            sequence.index,
            finish=FinishReason.STOP,
            cached_tokens=sequence.cached_tokens,
            embedding=embedding,
        )

    def _non_finite(self, sequence: Sequence) -> Output:
        self._blocks.discard(sequence)
        return self._fail(sequence, ErrorCode.NON_FINITE, "the model produced NaN or Inf for this request")

    def _fail(self, sequence: Sequence, code: ErrorCode, message: str) -> Output:
        return self.refuse(sequence, Failure(code, message))


def _first_turns(sampled: Iterable[Sequence], rows: Mapping[Sequence, int]) -> list[Turn]:
    """The first row of the logits of each sequence that is still there; the others are of its guesses."""
    first: dict[Sequence, int] = {}
    for row, sequence in enumerate(sampled):
        if sequence in rows:
            first.setdefault(sequence, row)
    return list(first.items())


def _traces(sequences: Iterable[Sequence]) -> str:
    """Which traces a log line belongs to."""
    found = {s.request.trace.traceparent for s in sequences if s.request.trace is not None}
    return f" (traces {', '.join(sorted(found))})" if found else ""
