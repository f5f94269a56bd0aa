"""The rows of a packed batch that belong to each adapter slot, and their division into tiles for launches."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels.identity_cache import IdentityCache
from loragate.kernels.transfers import to_device

LONG = 64  # minimum rows of a segment that counts as prefill
UNUSED_SLOT = 1 << 30  # in place of a slot, in an unneeded tile of a list of fixed length; larger than any slot
TILE_FIELDS = 3  # slot, first row, rows


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, stop) of the packed batch, of the adapter in `slot`. Base-only rows are in no segment."""

    slot: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop
        assert self.slot >= 0

    @property
    def rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class FixedSegments:
    """The segments of a batch of fixed size, in device memory that every step rewrites.

    No launch depends on the contents. The adapters of such a batch change only a linear's low-rank product, scale and
    shift.
    """

    slots: Tensor  # [rows], int64; −1 is the base model alone
    work: "WorkList"  # for the kernels of a GPU; the slot of an unneeded tile is UNUSED_SLOT


Segments = tuple[Segment, ...] | FixedSegments


def segments_from(slots: npt.ArrayLike) -> tuple[Segment, ...]:
    """Return the runs of equal slots, given the slot of each row. Rows of the base model alone have −1 and are left
    out."""
    numbers = np.asarray(slots)
    edges = np.flatnonzero(np.diff(numbers)) + 1
    starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(numbers)]
    return tuple(
        Segment(int(numbers[start]), start, stop)
        for start, stop in zip(starts, stops, strict=True)
        if numbers[start] >= 0
    )


class Tiling(NamedTuple):
    """Division of a launch into programs; it affects the speed, and the order in which shrink sums.

    A GPU's memory is fastest with some 32 to 64 KB in flight to each multiprocessor (Little's law: 25 to 36 bytes per
    nanosecond, on an H100 and an H200, times a latency near one microsecond). 64 rows of 64 adapters of rank 16 are 512
    programs of shrink for a linear, four per multiprocessor, each with three blocks of A, of 4 KB, in flight.
    """

    rows: int = 16  # maximum rows of a tile
    ranks: int = 16  # ranks of a program of shrink
    block_k: int = 128  # inputs that a program of shrink takes at a time
    splits: int = 8  # programs that share the inputs of a tile, if there are as many blocks of inputs
    block_n: int = 128  # columns that a program of expand takes at a time
    stages: int = 4  # blocks of inputs, of which all but one are in flight
    columns: int = 512  # of a program of expand


DECODE = Tiling()
PREFILL = Tiling(rows=64, ranks=64, block_k=64, splits=4, block_n=128, stages=3)
DECODE_TILINGS = (
    DECODE,
    Tiling(splits=4, block_n=256, stages=5, columns=1024),
    Tiling(block_k=256, splits=4, stages=3, columns=1024),
    Tiling(splits=16, stages=3),
)
PREFILL_TILINGS = PREFILL, PREFILL._replace(ranks=32, splits=2, block_n=64)
TILINGS = DECODE_TILINGS + PREFILL_TILINGS


def cut_into_tiles(segments: Iterable[Segment], rows: int) -> list[tuple[int, int, int]]:
    """Cut segments into tiles of at most `rows` rows: the slot, first row and number of rows of each."""
    return [
        (segment.slot, start, min(rows, segment.stop - start))
        for segment in segments
        for start in range(segment.start, segment.stop, rows)
    ]


class Work(NamedTuple):
    """The work of one launch: tiles [tiles, 3] of slot, first row and rows."""

    tiles: Tensor
    tiling: Tiling

    @classmethod
    def from_segments(cls, segments: Iterable[Segment], device: torch.device, tiling: Tiling) -> "Work":
        return cls(to_device(cut_into_tiles(segments, tiling.rows), device, torch.int64).view(-1, TILE_FIELDS), tiling)


WorkList = tuple[Work, ...]
"""The work of one composition of the batch, which all modules share."""

_recent: IdentityCache[WorkList] = IdentityCache()


def divide(segments: Iterable[Segment], device: torch.device, dtype: torch.dtype) -> WorkList:
    """Return the work of decode and that of prefill; an empty one is left out."""
    parts = by_tiling(segments, dtype)
    return tuple(Work.from_segments(part, device, tiling) for tiling, part in parts.items() if part)


def by_tiling(segments: Iterable[Segment], dtype: torch.dtype, *, prefill: bool = True) -> dict[Tiling, list[Segment]]:
    """Assign segments to the tilings of decode and prefill; without `prefill`, all of them to decode.

    Exact products of float32 do not benefit from large tiles, which are for tensor cores.
    """
    long = LONG if prefill and dtype != torch.float32 else math.inf
    parts: dict[Tiling, list[Segment]] = {DECODE: [], PREFILL: []}
    for segment in segments:
        parts[PREFILL if segment.rows >= long else DECODE].append(segment)
    return parts


def work_list(
    segments: tuple[Segment, ...], device: torch.device, dtype: torch.dtype, below: float = math.inf
) -> WorkList:
    """Return the work of the segments with fewer than `below` rows: the identical list for the identical tuple, as all
    modules of a step ask for it."""

    def make() -> WorkList:
        return divide((segment for segment in segments if segment.rows < below), device, dtype)

    return _recent.get(segments, (device, dtype, below), make)
