"""What the embeddings endpoint asks of the generation service, and what it gets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loragate.gateway.generation.target import Target
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """Checked: the prompts are not empty, in the vocabulary, and fit the context."""

    target: Target
    prompts: tuple[Sequence[int], ...]
    pooling: pb.Pooling
    share: pb.Share

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))


@dataclass(frozen=True, slots=True)
class Embedding:
    """Of prompt `index`."""

    index: int
    vector: npt.NDArray[np.float32]  # [hidden size], not normalised
