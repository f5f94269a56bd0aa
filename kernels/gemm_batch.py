"""Many small matrix products in one call, on a CPU.

A decode step multiplies a row or a few of each adapter with matrices of their own. One `torch.mm` for each spends
more time on being called than on reading memory; MKL's batched product (oneMKL reference, `cblas_?gemm_batch`)
takes them all, whatever their shapes, through arrays of pointers: nothing is stacked, padded or copied. torch's
wheels for x86 carry MKL and export it; elsewhere `available()` says no.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112
_ITEM = 4  # bytes of a float32

ROWS_ALIKE = 3
"""MKL computes up to this many rows of a product by one method, and more by another: within it a row's result does
not depend on how many rows are computed with it. `available` probes this."""


class Product(NamedTuple):
    """rows of x [rows, inner] times a matrix [inner, columns], float32 and contiguous, to rows of y [rows, columns].

    x and y begin at these offsets, in numbers, from the addresses that the call is given; `matrix` is an offset from
    an address likewise, or an address of its own where the call is given none. A tuple, because thousands are made.
    """

    rows: int
    inner: int
    columns: int
    x: int
    matrix: int
    y: int


class GemmBatch:
    """A batch of products prepared once and run often, on operands that lie elsewhere each time.

    `x_stride` and `y_stride` are the numbers from one row to the next; `add` keeps what y holds and adds to it;
    `transposed` says that each matrix lies in memory as [columns, inner]. An array of products has a product's fields
    in each row. Whoever gives addresses keeps the matrices
    alive for as long as the batch is run. Products also come as a table [products, fields].
    """

    def __init__(
        self,
        products: Sequence[Product] | npt.NDArray[np.int64],
        x_stride: int,
        y_stride: int,
        *,
        add: bool,
        transposed: bool = False,
    ) -> None:
        count = len(products)
        table = np.array(products, dtype=np.int64).reshape(count, len(Product._fields)).T
        numbers = np.empty((8, count), dtype=np.int32)
        numbers[:3] = table[:3]
        numbers[3:] = [[_NO_TRANSPOSE], [_TRANSPOSE if transposed else _NO_TRANSPOSE], [x_stride], [y_stride], [1]]
        rows, inner, columns, x_as_is, matrix_as, x_strides, y_strides, each = _addresses(numbers)
        factors = np.ones((2, count), dtype=np.float32)
        factors[1] = float(add)
        one, keep = _addresses(factors)
        self._alive = numbers, factors
        self._x, self._matrix, self._y = (_Pointers(offsets) for offsets in table[3:])
        self._arguments = (
            ctypes.c_int(_ROW_MAJOR),
            *(x_as_is, matrix_as, rows, columns, inner, one),
            *(self._x.address, x_strides, self._matrix.address, inner if transposed else columns, keep),
            *(self._y.address, y_strides, ctypes.c_int(count), each),
        )
        self._call = _library().cblas_sgemm_batch

    def run(self, x: Tensor, y: Tensor, matrices: Tensor | None = None) -> None:
        """Compute all products from x into y, float32 tensors that the offsets lie within."""
        self._x.move(x.data_ptr())
        self._y.move(y.data_ptr())
        self._matrix.move(0 if matrices is None else matrices.data_ptr())
        self._call(*self._arguments)


class _Pointers:
    """Addresses at fixed offsets from one that moves."""

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self._offsets = offsets
        self._values = np.empty((1, offsets.size), dtype=np.int64)
        self._at: int | None = None
        (self.address,) = _addresses(self._values)

    def move(self, at: int) -> None:
        """To numbers from `at`; from 0, the offsets are addresses already."""
        if at != self._at:
            self._at = at
            np.multiply(self._offsets, _ITEM if at else 1, out=self._values[0])
            self._values += at


@cache
def available() -> bool:
    """Whether this build of torch exports the batched product, it computes right, and rows are alike."""
    try:
        _library().cblas_sgemm_batch  # noqa: B018
    except (OSError, AttributeError):
        return False
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS_ALIKE, 40, generator=generator)
    matrix = torch.randn(40, 24, generator=generator)
    together, alone = torch.zeros(ROWS_ALIKE, 24), torch.zeros(ROWS_ALIKE, 24)
    GemmBatch([Product(ROWS_ALIKE, 40, 24, 0, 0, 0)], 40, 24, add=False).run(x, together, matrix)
    each = [Product(1, 40, 24, 40 * i, 0, 24 * i) for i in range(ROWS_ALIKE)]
    GemmBatch(each, 40, 24, add=False).run(x, alone, matrix)
    return torch.equal(together, alone) and torch.allclose(together, x @ matrix, atol=1e-4)


@cache
def _library() -> Any:
    folder = Path(torch.__file__).parent / "lib"
    return ctypes.CDLL(str(folder / "libtorch_cpu.so"))


def _addresses(table: npt.NDArray[Any]) -> list[ctypes.c_void_p]:
    """Where each row of a contiguous table begins."""
    start, step = table.ctypes.data, table.strides[0]
    return [ctypes.c_void_p(start + i * step) for i in range(len(table))]
