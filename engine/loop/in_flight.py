"""A step that was launched and whose results the host has not read."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.execution.model_runner import StepLogits
from loragate.engine.execution.packing import ScoredRows
from loragate.engine.sampling.prompt_scores import PromptScores, read, score
from loragate.engine.sampling.sampler import Chosen, Sampled
from loragate.engine.scheduling.step_budget import StepWork
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.transfers import Readback

SampledRow = tuple[Sequence, int]
"""A sequence that gets a token, and its row of the logits."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """Tokens for some sequences, on their way to the host."""

    sampled_rows: list[SampledRow]
    chosen: Chosen
    readback: Readback

    def read(self) -> list[Sampled]:
        """Return the choices in the order of `rows`."""
        return self.chosen.to_samples(self.readback.wait())


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Embeddings of prompts that end with this step, on their way to the host."""

    sequences: list[Sequence]
    readback: Readback

    def read(self) -> list[tuple[Sequence, Vector | None]]:
        """Return each embedding [hidden]; None if it is not finite."""
        vectors = (tuple(v.tolist()) if torch.isfinite(v).all() else None for v in self.readback.wait())
        return list(zip(self.sequences, vectors, strict=True))


@dataclass(frozen=True, slots=True)
class PromptReadback:
    """Logprobs of prompts, on their way to the host, and the prompts that end with this step without a token."""

    scored: list[ScoredRows]
    readback: Readback
    ended: list[Sequence]

    @classmethod
    def of(cls, step: StepLogits, rows: Mapping[Sequence, int], device: torch.device) -> "PromptReadback":
        """Start reading what a step over these rows found; their tokens are not marked as computed yet."""
        tensors = _scores(step).tensors if step.scored else ()
        silent = [s for s, tokens in rows.items() if tokens == s.remaining and not s.generates and s.pooled is None]
        return cls(step.scored, Readback(tensors, device), silent)

    def read(self) -> list[tuple[Sequence, PromptLogprobs | None]]:
        """Return the logprobs of each prompt's part; None if they are not finite."""
        found, start = [], 0
        tensors = self.readback.wait()
        for part in self.scored:
            stop = start + len(part.states)
            assert part.sequence.scoring is not None
            found.append((part.sequence, read([t[start:stop] for t in tensors], part.sequence.scoring.top)))
            start = stop
        return found


@dataclass(frozen=True, slots=True)
class InFlightStep:
    """A launched step. `began` is a time.perf_counter()."""

    rows: dict[Sequence, int]  # number of computed tokens of each
    logits: Tensor
    draw: Draw
    embeddings: Embeddings
    prompts: PromptReadback
    work: StepWork
    began: float


def _scores(step: StepLogits) -> PromptScores:
    tokens = [token for part in step.scored for token in part.tokens]
    top = max(part.sequence.scoring.top for part in step.scored if part.sequence.scoring is not None)
    return score(step.scored_logits, tokens, top)
