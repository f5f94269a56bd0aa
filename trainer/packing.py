"""Steps: sequences packed into one row of tokens, each padded to a multiple of 16 rows.

A padding row repeats the sequence's last token and position. Attention is causal, so no real row depends on it, and its
gradient is zero. Rows of one run are next to each other; its gradients are summed in pieces, in the order of its data,
that do not depend on where steps are cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from loragate.trainer.adapter import Adapter, Factors
from loragate.trainer.datum import Datum
from loragate.trainer.products import PIECE_ROWS, ROW_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Work:
    """One datum of a request, and the gradient that it adds to (None: only the loss is computed)."""

    request: int
    place: int  # among the request's data
    datum: Datum
    adapter: Adapter
    gradient: Factors | None

    @property
    def rows(self) -> int:
        return padded_rows(self.datum.tokens.shape[0])


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of one run, in the order of the step, and the sizes of the pieces that enter its gradient."""

    rows: int
    weights: Factors
    gradient: Factors | None
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """Sequences of one padded length, which attention computes together."""

    length: int
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """One packed computation.

    Attributes:
        tokens, positions: int64 [1, rows].
        starts: the first row of each item of work.
        order: the rows, sorted by the length of their sequences, and the inverse; None where all have one length.
    """

    work: tuple[Work, ...]
    starts: tuple[int, ...]
    tokens: Tensor
    positions: Tensor
    segments: tuple[Segment, ...]
    batches: tuple[SequenceBatch, ...]
    order: tuple[Tensor, Tensor] | None

    @property
    def rows(self) -> int:
        return self.tokens.shape[1]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [start, stop) of a step, the positions from `offset` of one item of work."""

    work: int
    offset: int
    start: int
    stop: int


def padded_rows(tokens: int) -> int:
    return -(-tokens // ROW_ALIGNMENT) * ROW_ALIGNMENT


def cut(work: Sequence[Work], max_rows: int) -> Iterator[tuple[Work, ...]]:
    """Yield the work in order, in steps of at most so many rows; a longer sequence is a step of its own."""
    step: list[Work] = []
    rows = 0
    for each in work:
        if step and rows + each.rows > max_rows:
            yield tuple(step)
            step, rows = [], 0
        step.append(each)
        rows += each.rows
    if step:
        yield tuple(step)


def pack(work: tuple[Work, ...], device: torch.device) -> Step:
    """Return the step of this work, whose items of one run must be consecutive."""
    lengths = np.array([each.rows for each in work])
    stops = np.cumsum(lengths)
    starts = tuple((stops - lengths).tolist())
    tokens = np.concatenate([_padded(each.datum.tokens, each.rows) for each in work])
    positions = np.concatenate([_padded(np.arange(each.datum.tokens.shape[0]), each.rows) for each in work])
    return Step(
        work,
        starts,
        torch.from_numpy(tokens)[None].to(device),
        torch.from_numpy(positions)[None].to(device),
        segments_of(work, pieces_of(work, starts)),
        tuple(SequenceBatch(int(n), int((lengths == n).sum())) for n in np.unique(lengths)),
        _order(lengths, starts, device),
    )


def pieces_of(work: tuple[Work, ...], starts: tuple[int, ...]) -> tuple[Piece, ...]:
    """Return the pieces of all work, in order; cuts are counted from the start of each sequence."""
    return tuple(
        Piece(index, offset, start + offset, start + min(offset + PIECE_ROWS, each.rows))
        for index, (each, start) in enumerate(zip(work, starts, strict=True))
        for offset in range(0, each.rows, PIECE_ROWS)
    )


def segments_of(work: tuple[Work, ...], pieces: Sequence[Piece]) -> tuple[Segment, ...]:
    """Return the segments of consecutive pieces."""
    segments: list[Segment] = []
    for piece in pieces:
        each = work[piece.work]
        rows = piece.stop - piece.start
        weights, gradient = each.adapter.weights, each.gradient
        last = segments[-1] if segments else None
        if last is not None and last.weights is weights and last.gradient is gradient:
            segments[-1] = Segment(last.rows + rows, weights, gradient, (*last.pieces, rows))
        else:
            segments.append(Segment(rows, weights, gradient, (rows,)))
    return tuple(segments)


def _padded(values: np.ndarray, rows: int) -> np.ndarray:
    return np.pad(values.astype(np.int64, copy=False), (0, rows - values.shape[0]), mode="edge")


def _order(lengths: np.ndarray, starts: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor] | None:
    if (lengths == lengths[0]).all():
        return None
    by_length = np.argsort(lengths, kind="stable")
    rows = np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in by_length])
    inverse = np.empty_like(rows)
    inverse[rows] = np.arange(rows.shape[0])
    return torch.from_numpy(rows).to(device), torch.from_numpy(inverse).to(device)
