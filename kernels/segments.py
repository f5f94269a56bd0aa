"""Which rows of a packed batch belong to which adapter slot, and how launches divide them into tiles."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels.host_to_device import sent
from loragate.kernels.identity_cache import Recent

LONG = 64  # rows from which on a segment counts as prefill
NOBODY = 1 << 30  # in place of a slot, in a tile of a list of fixed length that is not needed: more than there are
TILE_FIELDS = 3  # slot, first row, rows


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, stop) of the packed batch belong to the adapter in `slot`. Base-only rows are in no segment."""

    slot: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop
        assert self.slot >= 0


@dataclass(frozen=True, slots=True)
class FixedSegments:
    """The segments of a batch of fixed size, in memory of the device that each step fills anew: no launch depends on
    who is in the batch. Such a batch has no adapters that change more than a linear's low-rank product, scale and
    shift."""

    slots: Tensor  # [rows], int64; −1: the base model alone
    work: "WorkList"  # of the kernels of a GPU; tiles that are not needed are NOBODY's


Segments = tuple[Segment, ...] | FixedSegments


def segments_of(slots: npt.ArrayLike) -> tuple[Segment, ...]:
    """Runs of equal slots, given that of each row; rows of the base model alone have −1, and are left out."""
    numbers = np.asarray(slots)
    edges = np.flatnonzero(np.diff(numbers)) + 1
    starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(numbers)]
    return tuple(
        Segment(int(numbers[start]), start, stop)
        for start, stop in zip(starts, stops, strict=True)
        if numbers[start] >= 0
    )


class Tiling(NamedTuple):
    """How a launch divides its work; a choice of speed, and of the order in which shrink sums.

    A GPU's memory is at its fastest with some 32 to 64 KB on their way to each multiprocessor (Little's law: 25 to 36
    bytes a nanosecond, of an H100 and an H200, times a latency near one microsecond). 64 rows of as many adapters of
    rank 16 are 512 programs of shrink for a linear, four a multiprocessor, each with three blocks of A, of 4 KB, on
    their way.
    """

    rows: int = 16  # of a tile, at most
    ranks: int = 16  # of a program of shrink
    block_k: int = 128  # inputs that a program of shrink takes at a time
    splits: int = 8  # programs that share the inputs of a tile, if there are as many blocks of inputs
    block_n: int = 128  # columns of a program of expand
    stages: int = 4  # blocks of inputs, of which all but one are on their way


DECODE = Tiling()
PREFILL = Tiling(rows=64, ranks=64, block_k=64, splits=4, block_n=128, stages=3)
DECODE_TILINGS = (
    DECODE,
    Tiling(splits=4, block_n=256, stages=5),
    Tiling(block_k=256, splits=4, stages=3),
    Tiling(splits=16, stages=3),
)
PREFILL_TILINGS = PREFILL, PREFILL._replace(ranks=32, splits=2, block_n=64)
TILINGS = DECODE_TILINGS + PREFILL_TILINGS


def tiles_of(segments: Iterable[Segment], rows: int) -> list[tuple[int, int, int]]:
    """Cut into tiles of at most so many rows: slot, first row and rows of each."""
    return [
        (segment.slot, start, min(rows, segment.stop - start))
        for segment in segments
        for start in range(segment.start, segment.stop, rows)
    ]


class Work(NamedTuple):
    """What one launch does: tiles [tiles, 3] of slot, first row and rows."""

    tiles: Tensor
    tiling: Tiling

    @classmethod
    def of(cls, segments: Iterable[Segment], device: torch.device, tiling: Tiling) -> "Work":
        return cls(sent(tiles_of(segments, tiling.rows), device, torch.int64).view(-1, TILE_FIELDS), tiling)


WorkList = tuple[Work, ...]
"""The work of one composition of the batch, which all modules share."""

_recent: Recent[WorkList] = Recent()


def divide(segments: Iterable[Segment], device: torch.device, dtype: torch.dtype) -> WorkList:
    """Into that of decode and that of prefill; what is empty is left out."""
    parts = by_tiling(segments, dtype)
    return tuple(Work.of(part, device, tiling) for tiling, part in parts.items() if part)


def by_tiling(segments: Iterable[Segment], dtype: torch.dtype, *, prefill: bool = True) -> dict[Tiling, list[Segment]]:
    """Which segments are decode's and which prefill's; all are decode's of a step without `prefill`. Exact products of
    float32 have no use for large tiles, which tensor cores want."""
    long = LONG if prefill and dtype != torch.float32 else math.inf
    parts: dict[Tiling, list[Segment]] = {DECODE: [], PREFILL: []}
    for segment in segments:
        parts[PREFILL if segment.stop - segment.start >= long else DECODE].append(segment)
    return parts


def work_list(segments: tuple[Segment, ...], device: torch.device, dtype: torch.dtype) -> WorkList:
    """Of the identical tuple, the identical list: all modules of a step ask for the same ones."""
    return _recent.get(segments, (device, dtype), lambda: divide(segments, device, dtype))
