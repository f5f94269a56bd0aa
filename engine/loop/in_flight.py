"""A step that was launched, and whose results the host has not read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.execution.readback import Readback
from loragate.engine.sampling.sampler import Chosen, Sampled
from loragate.engine.scheduling.step_budget import StepWork
from loragate.engine.sequence.sequence import Sequence

Turn = tuple[Sequence, int]
"""Who gets a token, and from which row of the logits."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """Tokens for some sequences, on their way to the host."""

    turns: list[Turn]
    chosen: Chosen
    readback: Readback

    def read(self) -> list[Sampled]:
        """In the order of the turns."""
        return self.chosen.told(self.readback.wait())


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Of prompts that end with this step, on their way to the host."""

    sequences: list[Sequence]
    readback: Readback

    def read(self) -> list[tuple[Sequence, Vector | None]]:
        """Each [hidden]; None if it is not finite."""
        vectors = (tuple(v.tolist()) if torch.isfinite(v).all() else None for v in self.readback.wait())
        return list(zip(self.sequences, vectors, strict=True))


@dataclass(frozen=True, slots=True)
class Flight:
    """`began` is a time.perf_counter()."""

    rows: dict[Sequence, int]  # tokens of each that were computed
    logits: Tensor
    draw: Draw
    embeddings: Embeddings
    work: StepWork
    began: float
