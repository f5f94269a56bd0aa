"""Matrix products whose rows do not depend on the other rows, nor on the number of threads.

MKL chooses how to cut a product by its shape and the number of threads, and a sum that is cut elsewhere has other
bits. With few rows, or many terms in a sum, the choice differs. So sums are cut here, into blocks of a fixed size, and
rows come in multiples of 16, which also keeps each sequence's first row at a multiple of 64 bytes.
"""

import torch
from torch import Tensor

ROW_ALIGNMENT = 16
SUM_BLOCK = 512  # terms of a row's sum
PIECE_ROWS = 128  # rows of one sequence that a gradient sums at a time


def multiply(x: Tensor, w: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x [rows, n] @ w [n, m], or add it to `out` in place.

    A factor is not among the arguments: the library applies it before or after the sum, by the shape.

    In half precision the library sums in single precision; a block would round what it adds to.
    """
    terms = x.shape[1]
    if terms <= SUM_BLOCK or x.dtype != torch.float32:
        return _add(x, w, out)
    for start in range(0, terms, SUM_BLOCK):
        out = _add(x[:, start : start + SUM_BLOCK], w[start : start + SUM_BLOCK], out)
    assert out is not None
    return out


def _add(x: Tensor, w: Tensor, out: Tensor | None) -> Tensor:
    return torch.mm(x, w) if out is None else out.addmm_(x, w)


def add_outer(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Add leftᵀ [n, rows] @ right [rows, m] to `out`, for at most PIECE_ROWS rows of one sequence."""
    assert left.shape[0] <= PIECE_ROWS
    out.addmm_(left.t(), right)


def aligned(x: Tensor) -> Tensor:
    """Return x contiguous, and beginning at a multiple of 64 bytes."""
    x = x.contiguous()
    return x if x.data_ptr() % 64 == 0 else x.clone()
