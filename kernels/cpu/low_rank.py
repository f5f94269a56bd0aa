"""Low-rank products in which every row has an A and B of its own, each read from memory once, in place.

This is the shape of Punica's gathered product (Chen et al., 2023, arXiv:2310.18547, section 4). With few rows it is
bound by the memory traffic of their adapters. With many rows of one adapter, as in prefill, it is bound by arithmetic,
so rows are processed four at a time and each number read serves four rows. Each thread computes both shrink and expand
of whole rows, so no synchronization is needed between them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import carray
from torch import Tensor

from loragate.kernels.cpu.parallel import ParallelLoop, compiled, floats_at, int64_array, ints_at, thread, threads

Table = npt.NDArray[np.int64]

MAX_SINGLE_ROWS = 16  # rows; a segment of at most so many is computed row by row, so that neighbours do not matter
_TILE = 4  # rows of a longer segment that are computed together
_BLOCK = 512  # columns of those rows: as many as fit into the first-level cache
_FLOAT = 4  # bytes
_LINE = 16  # numbers per cache line; keeps threads from writing to the same one


class LowRankRows:
    """The low-rank products of one batch composition, prepared once and run repeatedly on different rows.

    segments [segments, 6]: rows [start, stop), the rank and the address of their A [rank, in], and the range [first,
    last) of their expands. expands [expands, 5]: the first of the shrunken numbers, their count, the number of columns,
    the first column of the output, and the address of B [numbers, columns]. Matrices are float32; the caller keeps them
    alive.
    """

    def __init__(self, segments: Table, expands: Table) -> None:
        self._tiles = _tiles(segments)
        self._expands = np.ascontiguousarray(expands)
        self._share(torch.get_num_threads())

    def _share(self, threads: int) -> None:
        """Divide the tiles among so many threads."""
        self._threads = threads
        shares = _shares(self._tiles[:, 1] * self._tiles[:, 2], threads)
        width = -(-int(self._tiles[:, 2].max()) // _LINE) * _LINE
        shrunk = np.empty((threads * _TILE, width), dtype=np.float32)
        self._tables = self._tiles, self._expands, shares, shrunk
        places = [number for table in self._tables for number in (table.ctypes.data, len(table))]
        self._arguments = int64_array(0, 0, 0, 0, width, *places)

    def add(self, out: Tensor, x: Tensor) -> None:
        """Add the products to rows of `out` [rows, out] in place, given `x` [rows, in]."""
        assert x.is_contiguous()
        assert out.is_contiguous()
        if torch.get_num_threads() != self._threads:
            self._share(torch.get_num_threads())
        self._arguments[:4] = [x.data_ptr(), out.data_ptr(), x.shape[1], out.shape[1]]
        add_rows(self._arguments)


def _tiles(segments: Table) -> Table:
    """Return [tiles, 6]: the first row, the number of rows (1 or 4), and the other fields of the segment."""
    starts, rows = segments[:, 0], segments[:, 1] - segments[:, 0]
    whole = np.where(rows > MAX_SINGLE_ROWS, rows // _TILE, 0)
    counts = whole + rows - whole * _TILE
    of = np.repeat(np.arange(len(segments)), counts)
    place = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    in_whole = np.minimum(place, whole[of])
    first = starts[of] + in_whole * (_TILE - 1) + place
    size = np.where(place < whole[of], _TILE, 1)
    return np.ascontiguousarray(np.concatenate([np.stack([first, size], axis=1), segments[of, 2:]], axis=1))


def _shares(cost: Table, count: int) -> Table:
    """Return the bounds of `count` runs of about equal cost."""
    total = np.cumsum(cost)
    wanted = total[-1] * np.arange(1, count) / count
    bounds = np.searchsorted(total - cost / 2, wanted)
    return np.concatenate([[0], bounds, [len(cost)]]).astype(np.int64)


@ParallelLoop
def add_rows(pointer: Any) -> None:
    arguments = carray(pointer, 13)
    x_at, out_at, inner, outer, width = arguments[:5]
    tiles = carray(ints_at(arguments[5]), (arguments[6], 6))
    expands = carray(ints_at(arguments[7]), (arguments[8], 5))
    shares = carray(ints_at(arguments[9]), arguments[10])
    shrunk = carray(floats_at(arguments[11] + _FLOAT * width * _TILE * thread()), (_TILE, width))
    for share in range(thread(), len(shares) - 1, threads()):
        for tile in range(shares[share], shares[share + 1]):
            row, rows, rank, a_at, first, last = tiles[tile]
            x = carray(floats_at(x_at + _FLOAT * row * inner), (rows, inner))
            out = carray(floats_at(out_at + _FLOAT * row * outer), (rows, outer))
            a = carray(floats_at(a_at), (rank, inner))
            if rows == 1:
                _shrink(shrunk[0], x[0], a)
            else:
                _shrink_four(shrunk, x, a)
            for part in range(first, last):
                start, ranks, columns, column, b_at = expands[part]
                b = carray(floats_at(b_at), (ranks, columns))
                if rows == 1:
                    _expand(out[0, column : column + columns], shrunk[0, start : start + ranks], b)
                else:
                    for block in range(0, columns, _BLOCK):
                        end = min(block + _BLOCK, columns)
                        block_out = out[:, column + block : column + end]
                        _expand_four(block_out, shrunk[:, start : start + ranks], b[:, block:end])


@compiled
def _shrink(shrunk: Any, x: Any, a: Any) -> None:
    """Compute x [in] → shrunk [rank] with A [rank, in]."""
    for r in range(a.shape[0]):
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += x[k] * a[r, k]
        shrunk[r] = total


@compiled
def _shrink_four(shrunk: Any, x: Any, a: Any) -> None:
    """Compute x [4, in] → shrunk [4, rank] with A [rank, in], two rows of A at a time."""
    for r in range(0, a.shape[0] // 2 * 2, 2):
        s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = np.float32(0)
        for k in range(a.shape[1]):
            a0, a1 = a[r, k], a[r + 1, k]
            s00 += x[0, k] * a0
            s01 += x[0, k] * a1
            s10 += x[1, k] * a0
            s11 += x[1, k] * a1
            s20 += x[2, k] * a0
            s21 += x[2, k] * a1
            s30 += x[3, k] * a0
            s31 += x[3, k] * a1
        shrunk[0, r], shrunk[0, r + 1] = s00, s01
        shrunk[1, r], shrunk[1, r + 1] = s10, s11
        shrunk[2, r], shrunk[2, r + 1] = s20, s21
        shrunk[3, r], shrunk[3, r + 1] = s30, s31
    if a.shape[0] % 2:
        for i in range(4):
            _shrink(shrunk[i, -1 + a.shape[0] :], x[i], a[-1 + a.shape[0] :])


@compiled
def _expand(out: Any, shrunk: Any, b: Any) -> None:
    """Add shrunk [ranks] · B [ranks, columns] to out [columns], eight rows of B in each pass over `out`."""
    whole = b.shape[0] // 8 * 8
    for r in range(0, whole, 8):
        s0, s1, s2, s3 = shrunk[r], shrunk[r + 1], shrunk[r + 2], shrunk[r + 3]
        s4, s5, s6, s7 = shrunk[r + 4], shrunk[r + 5], shrunk[r + 6], shrunk[r + 7]
        for c in range(b.shape[1]):
            out[c] += (s0 * b[r, c] + s1 * b[r + 1, c] + s2 * b[r + 2, c] + s3 * b[r + 3, c]) + (
                s4 * b[r + 4, c] + s5 * b[r + 5, c] + s6 * b[r + 6, c] + s7 * b[r + 7, c]
            )
    for r in range(whole, b.shape[0]):
        for c in range(b.shape[1]):
            out[c] += shrunk[r] * b[r, c]


@compiled
def _expand_four(out: Any, shrunk: Any, b: Any) -> None:
    """Add shrunk [4, ranks] · B [ranks, columns] to out [4, columns], four rows of B in each pass."""
    whole = b.shape[0] // 4 * 4
    for r in range(0, whole, 4):
        s00, s01, s02, s03 = shrunk[0, r], shrunk[0, r + 1], shrunk[0, r + 2], shrunk[0, r + 3]
        s10, s11, s12, s13 = shrunk[1, r], shrunk[1, r + 1], shrunk[1, r + 2], shrunk[1, r + 3]
        s20, s21, s22, s23 = shrunk[2, r], shrunk[2, r + 1], shrunk[2, r + 2], shrunk[2, r + 3]
        s30, s31, s32, s33 = shrunk[3, r], shrunk[3, r + 1], shrunk[3, r + 2], shrunk[3, r + 3]
        for c in range(b.shape[1]):
            b0, b1, b2, b3 = b[r, c], b[r + 1, c], b[r + 2, c], b[r + 3, c]
            out[0, c] += s00 * b0 + s01 * b1 + s02 * b2 + s03 * b3
            out[1, c] += s10 * b0 + s11 * b1 + s12 * b2 + s13 * b3
            out[2, c] += s20 * b0 + s21 * b1 + s22 * b2 + s23 * b3
            out[3, c] += s30 * b0 + s31 * b1 + s32 * b2 + s33 * b3
    for i in range(4):
        _expand(out[i], shrunk[i, whole:], b[whole:])
