"""Many small matrix products in one call, on a CPU.

A decode step multiplies a row or a few of each adapter with matrices of their own. One `torch.mm` for each spends
more time on being called than on reading memory; MKL's batched product (oneMKL reference, `cblas_?gemm_batch`)
takes them all, whatever their shapes, through arrays of pointers: nothing is stacked, padded or copied. torch's
wheels for x86 carry MKL and export it; elsewhere `available()` says no.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ROW_MAJOR, _NO_TRANSPOSE = 101, 111
_ITEM = 4  # bytes of a float32

ROWS_ALIKE = 3
"""MKL computes up to this many rows of a product by one method, and more by another: within it a row's result does
not depend on how many rows are computed with it. `available` probes this."""


@dataclass(frozen=True, slots=True)
class Product:
    """rows of x [rows, inner] times `weight` [inner, columns], float32 and contiguous, to rows of y [rows, columns].

    x and y begin at these offsets, in numbers, from the addresses that the call is given.
    """

    rows: int
    x_offset: int
    weight: Tensor
    y_offset: int


class GemmBatch:
    """A batch of products prepared once and run often, on x and y that lie elsewhere each time.

    `x_stride` and `y_stride` are the numbers from one row to the next; `add` keeps what y holds and adds to it.
    """

    def __init__(self, products: Sequence[Product], x_stride: int, y_stride: int, *, add: bool) -> None:
        count = len(products)
        inner = [p.weight.shape[0] for p in products]
        columns = [p.weight.shape[1] for p in products]
        self._x_offsets = np.array([p.x_offset for p in products], dtype=np.uint64) * np.uint64(_ITEM)
        self._y_offsets = np.array([p.y_offset for p in products], dtype=np.uint64) * np.uint64(_ITEM)
        self._x = np.empty(count, dtype=np.uint64)
        self._y = np.empty(count, dtype=np.uint64)
        weights = np.array([p.weight.data_ptr() for p in products], dtype=np.uint64)
        fixed: dict[str, npt.NDArray[Any]] = {
            "transposed": np.full(count, _NO_TRANSPOSE, dtype=np.int32),
            "rows": _int32([p.rows for p in products]),
            "columns": _int32(columns),
            "inner": _int32(inner),
            "one": np.ones(count, dtype=np.float32),
            "keep": np.full(count, float(add), dtype=np.float32),
            "x_stride": np.full(count, x_stride, dtype=np.int32),
            "weight_stride": _int32(columns),
            "y_stride": np.full(count, y_stride, dtype=np.int32),
            "each": np.ones(count, dtype=np.int32),
            "weights": weights,
        }
        at = {name: _address(array) for name, array in fixed.items()}
        self._alive = fixed, [p.weight for p in products]  # MKL reads them by address
        self._arguments = (
            ctypes.c_int(_ROW_MAJOR),
            at["transposed"],
            at["transposed"],
            at["rows"],
            at["columns"],
            at["inner"],
            at["one"],
            _address(self._x),
            at["x_stride"],
            at["weights"],
            at["weight_stride"],
            at["keep"],
            _address(self._y),
            at["y_stride"],
            ctypes.c_int(count),
            at["each"],
        )
        self._call = _library().cblas_sgemm_batch
        self._x_at = self._y_at = -1

    def run(self, x: Tensor, y: Tensor) -> None:
        """Compute all products from x into y, float32 tensors that the offsets lie within."""
        x_at, y_at = x.data_ptr(), y.data_ptr()
        if x_at != self._x_at:
            np.add(self._x_offsets, np.uint64(x_at), out=self._x)
            self._x_at = x_at
        if y_at != self._y_at:
            np.add(self._y_offsets, np.uint64(y_at), out=self._y)
            self._y_at = y_at
        self._call(*self._arguments)


@cache
def available() -> bool:
    """Whether this build of torch exports the batched product, it computes right, and rows are alike."""
    try:
        _library().cblas_sgemm_batch  # noqa: B018
    except (OSError, AttributeError):
        return False
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS_ALIKE, 40, generator=generator)
    weight = torch.randn(40, 24, generator=generator)
    together, alone = torch.zeros(ROWS_ALIKE, 24), torch.zeros(ROWS_ALIKE, 24)
    GemmBatch([Product(ROWS_ALIKE, 0, weight, 0)], 40, 24, add=False).run(x, together)
    GemmBatch([Product(1, 40 * i, weight, 24 * i) for i in range(ROWS_ALIKE)], 40, 24, add=False).run(x, alone)
    return torch.equal(together, alone) and torch.allclose(together, x @ weight, atol=1e-4)


@cache
def _library() -> Any:
    folder = Path(torch.__file__).parent / "lib"
    return ctypes.CDLL(str(folder / "libtorch_cpu.so"))


def _int32(values: list[int]) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def _address(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
