"""The tokens chosen by the last step, on the device: the next step begins with them before the host knows them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from loragate.engine.sequence.sequence import Sequence


class LastTokens:
    """At most `max_sequences` tokens, at a fixed address because captured steps read them too.

    In a sequence's tokens, and so among a step's input ids, −1 − i stands for the i-th of them.
    """

    def __init__(self, max_sequences: int, device: torch.device) -> None:
        self._tokens = torch.zeros(max_sequences, dtype=torch.long, device=device)

    @torch.inference_mode()
    def store(self, tokens: Tensor) -> None:
        """Store the tokens of the last step.

        A negative entry means that there is no token. That sequence fails when the host reads it; until then its rows
        only must stay within bounds.
        """
        self._tokens[: tokens.shape[0]].copy_(tokens.clamp(min=0))

    def fill_in(self, input_ids: Tensor) -> Tensor:
        """Return input ids with these tokens filled in."""
        last = self._tokens.index_select(0, (-1 - input_ids).clamp(min=0))
        return torch.where(input_ids < 0, last, input_ids)


def append_placeholders(sequences: Iterable[Sequence]) -> None:
    """Append a placeholder for the token that each sequence got, in this order, and that the host has not read."""
    for place, sequence in enumerate(sequences):
        sequence.tokens.append(-1 - place)
