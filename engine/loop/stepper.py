"""Executes a scheduled step: forward pass, sampling, read-back, outputs.

With asynchronous scheduling, a step is launched before the tokens of the previous one are read. Its rows begin with
tokens that are still on the device; meanwhile the host reads them, ends the sequences that are complete, and prepares
the next sampling. Everything on the device happens in the order of the launches, so anything that a step reads or
writes may be given to others as soon as it is launched.
"""

import logging
import time
import traceback
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.slot import StaleSlot
from loragate.engine.execution.model_runner import ModelRunner, append_placeholders
from loragate.engine.grammar.compiler import GrammarCompiler
from loragate.engine.grammar.matcher import GrammarFailed
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.in_flight import Draw, Embeddings, InFlightStep, PromptReadback, SampledRow, Vector
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.metrics.counters import EngineMetrics
from loragate.engine.metrics.timeline import Timeline
from loragate.engine.sampling.grammar_mask import token_mask
from loragate.engine.sampling.random_sampling import select_rows
from loragate.engine.sampling.sampler import Sampled, choose
from loragate.engine.scheduling.scheduler import Scheduler
from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.transfers import Readback

log = logging.getLogger(__name__)


class Stepper:
    """Runs steps. With `late`, a step's results are read after the next launch, or by `collect` if there is none."""

    def __init__(
        self,
        *,
        runner: ModelRunner,
        scheduler: Scheduler,
        blocks: BlockPool,
        adapters: AdapterPool,
        grammars: GrammarCompiler,
        limits: ModelLimits,
        metrics: EngineMetrics,
        timeline: Timeline,
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
        self._launched: InFlightStep | None = None
        self._last_collected = 0.0  # when the last step was collected

    @property
    def in_flight(self) -> bool:
        """Whether a step is launched and not yet collected."""
        return self._launched is not None

    def step(self, scheduled: dict[Sequence, int]) -> list[Output]:
        """Launch a step, and return the outputs that were read in the meantime."""
        began, work = time.perf_counter(), self._scheduler.work
        outputs = [self._fail(s, code, why) for s, code, why in self._unfit(scheduled)]
        alive = {s: tokens for s, tokens in scheduled.items() if s.blocks}
        if not alive:
            return outputs + self.collect()
        try:
            step = self._runner.execute(alive)
        except Exception as error:
            outputs += self.collect()
            return outputs + self._failed(error, alive)
        self._timeline.ended("forward")
        if self._launched is not None:
            outputs += self.collect()
            self._timeline.ended("read")
        rows = self._still_open(alive)
        try:
            embeddings, prompts = self._embed(rows), PromptReadback.of(step, rows, self._runner.device)
            draw = self._draw(step.logits, _first_rows(step.sampled, rows))
        except Exception as error:
            return outputs + self._failed(error, alive)
        self._launched = InFlightStep(rows, step.logits, draw, embeddings, prompts, work, began)
        self._publish(rows)
        if not self.late or any(sequence.wants_draft for sequence, _ in draw.sampled_rows):
            outputs += self.collect()
        self._timeline.ended("sample")
        return outputs

    def collect(self) -> list[Output]:
        """Read the step that was launched last, if it has not been read."""
        launched, self._launched = self._launched, None
        if launched is None:
            return []
        try:
            embeddings, choices = launched.embeddings.read(), launched.draw.read()
            scores = launched.prompts.read()
        except Exception as error:
            return self._fail_all(error, launched.rows)
        outputs = [self._embedded(s, vector) for s, vector in embeddings if self._scheduler.holds(s)]
        outputs += [self._scored(s, logprobs) for s, logprobs in scores if self._scheduler.holds(s)]
        outputs += [self._ended(s) for s in launched.prompts.ended if self._scheduler.holds(s)]
        sampled_rows = launched.draw.sampled_rows
        while sampled_rows:
            each = zip(sampled_rows, choices, strict=True)
            outputs += [self._advance(s, choice) for (s, _), choice in each if self._scheduler.holds(s)]
            sampled_rows = self._accept_drafts(sampled_rows)
            try:
                choices = self._draw(launched.logits, sampled_rows).read() if sampled_rows else []
            except Exception as error:
                return outputs + self._fail_all(error, [sequence for sequence, _ in sampled_rows])
        now = time.perf_counter()
        self._scheduler.record_step(launched.work, now - max(launched.began, self._last_collected))
        self._last_collected = now
        return outputs

    def reject(self, sequence: Sequence, failure: Failure) -> Output:
        """End a sequence without a result."""
        self._scheduler.remove(sequence)
        return Output(
            sequence.request, sequence.index, finish=FinishReason.ERROR, error=failure, computed=sequence.usage
        )

    def _still_open(self, rows: Mapping[Sequence, int]) -> dict[Sequence, int]:
        """Return the rows of those sequences that have not ended."""
        return {s: tokens for s, tokens in rows.items() if self._scheduler.holds(s)}

    def _failed(self, error: Exception, rows: dict[Sequence, int]) -> list[Output]:
        """Handle a step that could not be launched. Some of its sequences may have ended in the meantime."""
        if not isinstance(error, torch.OutOfMemoryError):
            return self._fail_all(error, rows)
        log.warning("a step over %d tokens of %d sequences: %s", sum(rows.values()), len(rows), error)
        traceback.clear_frames(error.__traceback__)  # frames hold the tensors that the step had computed
        return self._handle_out_of_memory(rows)

    def _fail_all(self, error: Exception, rows: Collection[Sequence]) -> list[Output]:
        """Fail sequences whose results are lost."""
        log.error("a step over %d sequences failed%s", len(rows), _traces(rows), exc_info=error)
        self._runner.check_device()
        return [
            self._fail(s, ErrorCode.INTERNAL, "the engine failed in this step")
            for s in rows
            if self._scheduler.holds(s)
        ]

    def _handle_out_of_memory(self, rows: dict[Sequence, int]) -> list[Output]:
        """Handle a lack of device memory: try smaller steps, down to a single token.

        A sequence that does not even have room for that fails.
        """
        torch.cuda.empty_cache()
        if sum(rows.values()) > 1:
            self._scheduler.record_out_of_memory(rows)
            return []
        return [
            self._fail(s, ErrorCode.INTERNAL, "the device does not have enough memory for this request")
            for s in self._still_open(rows)
        ]

    def _draw(self, logits: Tensor, sampled_rows: list[SampledRow]) -> Draw:
        """Choose the next token of each sequence from its row of the logits."""
        sequences, rows = [sequence for sequence, _ in sampled_rows], [row for _, row in sampled_rows]
        sampled_logits = select_rows(logits, rows) if rows else logits[:0]
        chosen = choose(sampled_logits, sequences, self._limits.eos, token_mask(sequences, self._grammars))
        readback = Readback(chosen.tensors, self._runner.device)
        self._runner.last.store(chosen.tokens)
        append_placeholders(sequences)
        return Draw(sampled_rows, chosen, readback)

    def _embed(self, rows: dict[Sequence, int]) -> Embeddings:
        ended = {s: s.pooled for s, tokens in rows.items() if s.pooled is not None and tokens == s.remaining}
        return Embeddings(list(ended), Readback([p.result() for p in ended.values()], self._runner.device))

    def _publish(self, rows: dict[Sequence, int]) -> None:
        """Mark all rows as computed and publish their blocks. Their tokens are known.

        Others can use the blocks because their launches come later.
        """
        for sequence, tokens in rows.items():
            sequence.computed += tokens - len(sequence.draft)
            if sequence.scoring is not None:
                sequence.scoring.scored = max(sequence.scoring.scored, sequence.computed)
            self._blocks.publish(sequence)

    def _accept_drafts(self, sampled_rows: list[SampledRow]) -> list[SampledRow]:
        """Return the sequences whose token matched their draft, with the row that was computed for it.

        The drafts of the others are finished; what was computed for them lies after their tokens and is overwritten.
        """
        accepted_rows = []
        for sequence, row in sampled_rows:
            accepted = sequence.accepted
            if sequence.blocks and accepted < len(sequence.draft) and sequence.tokens[-1] == sequence.draft[accepted]:
                sequence.accepted += 1
                sequence.computed += 1
                accepted_rows.append((sequence, row + 1))
            elif sequence.draft:
                self._metrics.draft_checked(len(sequence.draft), accepted)
                sequence.finish_draft()
                if sequence.blocks:
                    self._blocks.publish(sequence)
        return accepted_rows

    def _unfit(self, scheduled: dict[Sequence, int]) -> list[tuple[Sequence, ErrorCode, str]]:
        """Return the sequences that cannot be computed with what is in their slot, each with the reason."""
        unfit = []
        for sequence in scheduled:
            if sequence.lease is not None:
                try:
                    self._adapters.check(sequence.lease)
                except StaleSlot as error:
                    log.error("a sequence was about to decode with another adapter's weights: %s", error)
                    sequence.lease = None
                    unfit.append((sequence, ErrorCode.INTERNAL, "its adapter's slot was reassigned"))
                    continue
                problem = self._runner.head_problem(sequence)
                if problem is not None:
                    unfit.append((sequence, ErrorCode.INVALID_REQUEST, problem))
        return unfit

    def _advance(self, sequence: Sequence, choice: Sampled) -> Output:
        """Replace the expected token by the chosen one."""
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
            sequence.request,
            sequence.index,
            choice.token,
            choice.logprob,
            finish,
            cached_tokens=cached_tokens,
            computed=None if finish is None else sequence.usage,
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
            computed=sequence.usage,
        )

    def _scored(self, sequence: Sequence, logprobs: PromptLogprobs | None) -> Output:
        if logprobs is None:
            return self._non_finite(sequence)
        return Output(sequence.request, sequence.index, prompt_logprobs=logprobs)

    def _ended(self, sequence: Sequence) -> Output:
        """End a sequence that generates nothing, once its prompt is computed."""
        self._scheduler.remove(sequence)
        finish, cached_tokens = FinishReason.LENGTH, sequence.cached_tokens
        return Output(
            sequence.request, sequence.index, finish=finish, cached_tokens=cached_tokens, computed=sequence.usage
        )

    def _non_finite(self, sequence: Sequence) -> Output:
        self._blocks.discard(sequence)
        return self._fail(sequence, ErrorCode.NON_FINITE, "the model produced NaN or Inf for this request")

    def _fail(self, sequence: Sequence, code: ErrorCode, message: str) -> Output:
        return self.reject(sequence, Failure(code, message))


def _first_rows(sampled: Iterable[Sequence], rows: Mapping[Sequence, int]) -> list[SampledRow]:
    """Return the first row of the logits of each sequence that has not ended; its other rows are for its draft."""
    first: dict[Sequence, int] = {}
    for row, sequence in enumerate(sampled):
        if sequence in rows:
            first.setdefault(sequence, row)
    return list(first.items())


def _traces(sequences: Iterable[Sequence]) -> str:
    """Return the traces that a log line belongs to."""
    found = {s.request.trace.traceparent for s in sequences if s.request.trace is not None}
    return f" (traces {', '.join(sorted(found))})" if found else ""
