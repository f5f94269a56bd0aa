"""Token files as the rows that training steps take."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.packing import pack
from loragate.finetune.data.token_file import TokenFile

IGNORED = -100  # the label that torch's cross entropy ignores


Row = dict[str, Tensor]


class Rows(Dataset[Row]):
    """One row per sample; a row is read when it is requested."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> Row:
        """See `ragged_row`."""
        return ragged_row([self._tokens[place] for place in self._places(index)])

    def _places(self, index: int) -> Sequence[int]:
        """Return the samples of a row."""
        return (index,)


class PackedRows(Rows):
    """Rows of several whole samples, up to `row_length` tokens each."""

    def __init__(self, tokens: TokenFile, row_length: int) -> None:
        super().__init__(tokens)
        self._rows = pack(tokens.lengths.tolist(), row_length)

    def __len__(self) -> int:
        return len(self._rows)

    def _places(self, index: int) -> Sequence[int]:
        return self._rows[index]


class PairRows(Rows):
    """One row per preference: the sample of the better answer, then that of the other, both after their prompt."""

    def __len__(self) -> int:
        return len(self._tokens) // 2

    def _places(self, index: int) -> Sequence[int]:
        return (2 * index, 2 * index + 1)

    def __getitem__(self, index: int) -> Row:
        """See `pair_row`."""
        return pair_row([self._tokens[place] for place in self._places(index)])


def pair_row(samples: Sequence[Sample]) -> Row:
    """Return a row of two samples: `chosen` and `rejected`, int64 `[tokens]`, and their loss masks, `…_learned`,
    bool."""
    row: Row = {}
    for name, sample in zip(("chosen", "rejected"), samples, strict=True):
        row[name] = torch.from_numpy(sample.ids.astype(np.int64))
        row[f"{name}_learned"] = torch.from_numpy(sample.learned.copy())
    return row


def ragged_row(samples: Sequence[Sample]) -> Row:
    """Return the samples one after the other as `input_ids`, `position_ids` and `labels`, each int64 `[tokens]`.

    Positions restart with each sample, which is how attention keeps samples apart. A sample's first token has no label,
    because it has no context.
    """
    ids = np.concatenate([sample.ids for sample in samples]).astype(np.int64)
    positions = np.concatenate([np.arange(len(sample.ids)) for sample in samples])
    learned = np.concatenate([sample.learned for sample in samples])
    labels = np.where(learned & (positions > 0), ids, IGNORED)
    arrays: dict[str, np.ndarray[Any, Any]] = {"input_ids": ids, "position_ids": positions, "labels": labels}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def concatenate_rows(rows: Sequence[Row]) -> Row:
    """Collate rows by concatenation: `[1, tokens]`, without padding."""
    return {name: torch.cat([row[name] for row in rows])[None] for name in rows[0]}


def pad_rows_for(invocation: Sequence[int]) -> Callable[[Sequence[Row]], Row]:
    """Return a collator of rows for activated LoRA: `[rows, longest]`, padded on the right, because PEFT looks for one
    invocation in each row. The padding token is not of the invocation, so that none begins or ends in padding."""
    padding = next(token for token in count() if token not in invocation)

    def collate(rows: Sequence[Row]) -> Row:
        ids = [row["input_ids"] for row in rows]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
            "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
            "labels": pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=IGNORED),
        }

    return collate


def pad_pairs(rows: Sequence[Row]) -> Row:
    """Collate pairs: all better answers, then all others, each int64 `[2 * rows, longest]`, padded on the right."""
    ids = [row[name] for name in ("chosen", "rejected") for row in rows]
    learned = [row[name] for name in ("chosen_learned", "rejected_learned") for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
        "completion_mask": pad_sequence(learned, batch_first=True).long(),
    }
