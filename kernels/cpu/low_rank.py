"""Rows times an A and a B of their own, each read from memory once, where it lies.

The shape of Punica's gathered product (Chen et al., 2023, arXiv:2310.18547, section 4) for few rows: a row's product
is a matrix-vector product, bound by the memory that its adapter takes. Each thread computes whole rows, shrink and
expand, so that nothing is waited for between them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import carray
from torch import Tensor

from loragate.kernels.cpu.parallel import ParallelLoop, compiled, floats_at, numbers_at, thread, threads, whole_numbers

_FLOAT = 4  # bytes
_LINE = 16  # numbers of a cache line, so that threads do not write to one


class LowRankRows:
    """The products of one composition of a batch, prepared once and run often, on rows that lie elsewhere each time.

    shrinks [products, 5]: a row of x, the rank and the address of its A [rank, in], and from which to before which of
    the expands belong to it. expands [expands, 5]: the first of the shrunken numbers, how many they are, the number of
    columns and the first column of the output, and the address of B [numbers, columns]. Matrices are float32; whoever
    gives their addresses keeps them alive.
    """

    def __init__(self, shrinks: npt.NDArray[np.int64], expands: npt.NDArray[np.int64]) -> None:
        shares = _shares(shrinks[:, 1], torch.get_num_threads())
        width = -(-int(shrinks[:, 1].max()) // _LINE) * _LINE
        shrunk = np.empty((len(shares), width), dtype=np.float32)
        self._tables = np.ascontiguousarray(shrinks), np.ascontiguousarray(expands), shares, shrunk
        places = [number for table in self._tables for number in (table.ctypes.data, len(table))]
        self._arguments = whole_numbers(0, 0, 0, 0, width, *places)

    def add(self, out: Tensor, x: Tensor) -> None:
        """Add to rows of `out` [rows, out], given `x` [rows, in], in place."""
        assert x.is_contiguous()
        assert out.is_contiguous()
        self._arguments[:4] = x.data_ptr(), out.data_ptr(), x.shape[1], out.shape[1]
        _add_rows(self._arguments)


def _shares(cost: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Bounds of `count` runs of about the same cost."""
    total = np.cumsum(cost)
    wanted = total[-1] * np.arange(1, count) / count
    bounds = np.searchsorted(total - cost / 2, wanted)
    return np.concatenate([[0], bounds, [len(cost)]]).astype(np.int64)


@ParallelLoop
def _add_rows(pointer: Any) -> None:
    arguments = carray(pointer, 13)
    x, out, inner, outer, width = arguments[:5]
    shrinks = carray(numbers_at(arguments[5]), (arguments[6], 5))
    expands = carray(numbers_at(arguments[7]), (arguments[8], 5))
    shares = carray(numbers_at(arguments[9]), arguments[10])
    shrunk = carray(floats_at(arguments[11] + _FLOAT * width * thread()), width)
    for share in range(thread(), len(shares) - 1, threads()):
        for piece in range(shares[share], shares[share + 1]):
            row, rank, address, first, last = shrinks[piece]
            x_row = carray(floats_at(x + _FLOAT * row * inner), inner)
            out_row = carray(floats_at(out + _FLOAT * row * outer), outer)
            _shrink(shrunk, x_row, carray(floats_at(address), (rank, inner)))
            for part in range(first, last):
                start, ranks, columns, column, address = expands[part]
                b = carray(floats_at(address), (ranks, columns))
                _expand(out_row[column : column + columns], shrunk[start : start + ranks], b)


@compiled
def _shrink(shrunk: Any, x: Any, a: Any) -> None:
    """x [in] → shrunk [rank], by A [rank, in]."""
    for r in range(a.shape[0]):
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += x[k] * a[r, k]
        shrunk[r] = total


@compiled
def _expand(out: Any, shrunk: Any, b: Any) -> None:
    """Add to out [columns] what shrunk [ranks] is by B [ranks, columns]; eight rows of B a pass over `out`."""
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
