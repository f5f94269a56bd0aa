"""The tokens that the last step chose, on the device: the next step begins with them before the host knows them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from loragate.engine.sequence.sequence import Sequence


class LastTokens:
    """At most `most` of them, in memory that stays where it is: recorded steps read it too.

    In a sequence's tokens, and so among a step's input ids, −1 − i stands for the i-th of them.
    """

    def __init__(self, most: int, device: torch.device) -> None:
        self._tokens = torch.zeros(most, dtype=torch.long, device=device)

    @torch.inference_mode()
    def keep(self, tokens: Tensor) -> None:
        """These are the last step's. Where there is none, which is negative, the sequence fails when the host hears of
        it, and what is computed for it until then only must not be out of bounds."""
        self._tokens[: tokens.shape[0]].copy_(tokens.clamp(min=0))

    def filled(self, input_ids: Tensor) -> Tensor:
        """Input ids with these tokens in their places."""
        last = self._tokens.index_select(0, (-1 - input_ids).clamp(min=0))
        return torch.where(input_ids < 0, last, input_ids)


def expect_tokens(sequences: Iterable[Sequence]) -> None:
    """Each of the sequences was given a token, in this order, which the host has not read."""
    for place, sequence in enumerate(sequences):
        sequence.tokens.append(-1 - place)
