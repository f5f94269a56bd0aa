"""A step that was launched and whose results the host has not read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sampling.sampler import Chosen, Sampled
from loragate.engine.scheduling.step_budget import StepWork
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
class InFlightStep:
    """A launched step. `began` is a time.perf_counter()."""

    rows: dict[Sequence, int]  # number of computed tokens of each
    logits: Tensor
    draw: Draw
    embeddings: Embeddings
    work: StepWork
    began: float
