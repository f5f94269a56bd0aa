"""Token files as what a training step takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.packing import pack
from loragate.finetune.data.token_file import TokenFile

IGNORED = -100  # what torch's cross entropy leaves out


class PackedRows(Dataset[dict[str, Tensor]]):
    """Rows of whole samples, each row up to `row_length` tokens. Nothing is read before a row is asked for."""

    def __init__(self, tokens: TokenFile, row_length: int) -> None:
        self._tokens = tokens
        self._rows = pack(tokens.lengths.tolist(), row_length)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """See `ragged_row`."""
        return ragged_row([self._tokens[place] for place in self._rows[index]])


def ragged_row(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """`input_ids`, `position_ids`, `labels`, each int64 `[tokens]`, one sample behind the other.

    Positions begin anew with each sample: that is how attention knows that samples do not see each other. A sample's
    first token has no label, since nothing of its own comes before it.
    """
    ids = np.concatenate([sample.ids for sample in samples]).astype(np.int64)
    positions = np.concatenate([np.arange(len(sample.ids)) for sample in samples])
    learned = np.concatenate([sample.learned for sample in samples])
    labels = np.where(learned & (positions > 0), ids, IGNORED)
    arrays: dict[str, np.ndarray[Any, Any]] = {"input_ids": ids, "position_ids": positions, "labels": labels}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def one_row(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """A collator: the rows behind one another, `[1, tokens]`, without padding."""
    return {name: torch.cat([row[name] for row in rows])[None] for name in rows[0]}
