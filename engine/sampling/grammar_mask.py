"""The tokens that the grammars and thoughts of a batch allow, and the masking of its logits."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.engine.grammar.allowed_tokens import ANY_TOKENS
from loragate.engine.grammar.compiler import GrammarCompiler
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.transfers import to_device


@dataclass(frozen=True, slots=True)
class TokenMask:
    """`rows` of the batch are restricted; `packed` int32 [len(rows), words] has bit i of word w for token 32·w + i."""

    rows: tuple[int, ...]
    packed: npt.NDArray[np.int32]

    def forbid(self, logits: Tensor) -> None:
        """Set forbidden tokens to -inf, in place; logits [len(rows), vocabulary]."""
        logits.masked_fill_(self._forbidden(logits.device)[:, : logits.shape[1]], float("-inf"))

    def _forbidden(self, device: torch.device) -> Tensor:
        octets = self.packed.view(np.uint8)
        if device.type == "cpu":
            return torch.from_numpy(np.unpackbits(~octets, axis=1, bitorder="little").view(np.bool_))
        places = torch.arange(8, dtype=torch.uint8, device=device)
        return ((to_device(octets, device)[..., None] >> places) & 1 == 0).flatten(1)


def token_mask(sequences: Seq[Sequence], grammars: GrammarCompiler) -> TokenMask | None:
    """Return the mask of a step's sampled sequences, or None if none of them is restricted."""
    matchers = [(row, s.matcher) for row, s in enumerate(sequences) if s.matcher is not None]
    restricted = [(row, allowed) for row, matcher in matchers if (allowed := matcher.allowed) != ANY_TOKENS]
    if not restricted:
        return None
    rows = tuple(row for row, _ in restricted)
    return TokenMask(rows, grammars.masks.fill([allowed for _, allowed in restricted]))
