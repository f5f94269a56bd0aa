"""DoRA (Liu et al., 2024, arXiv:2402.09353): weights by direction and magnitude, served as a scale of each output.

The scale is magnitude / ‖W'‖ with W' = W + B · A, a norm for each output. It depends only on the base model and the
adapter, so it is computed once, when the adapter is read, and stored with its other weights.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK = 1 << 22  # numbers of W' at once; all of it, for all modules, would be a second base model


def row_scale(weight: Tensor, a: Tensor, b: Tensor, magnitude: Tensor) -> Tensor:
    """Return the scale of each row of weight [out, in]: [out], float32. a [rank, in]; b [out, rank], already scaled."""
    a = a.to(weight.device)
    norms = [torch.addmm(w.float(), part, a).norm(dim=1) for w, part in _blocks(weight, b)]
    return magnitude / torch.cat(norms).to(magnitude.device)


def column_scale(weight: Tensor, a: Tensor, b: Tensor, magnitude: Tensor) -> Tensor:
    """Return the scale of each column of weight [rows, dim]: [dim], float32. a [rows, rank]; b [rank, dim], already
    scaled."""
    b = b.to(weight.device)
    squares = torch.zeros(weight.shape[1], dtype=torch.float64, device=weight.device)
    for w, part in _blocks(weight, a):
        squares += torch.addmm(w.float(), part, b).square().sum(dim=0, dtype=torch.float64)
    return magnitude / squares.sqrt().float().to(magnitude.device)


def _blocks(weight: Tensor, factor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a few rows of both at a time."""
    rows = max(1, _BLOCK // weight.shape[1])
    for start in range(0, weight.shape[0], rows):
        yield weight[start : start + rows], factor[start : start + rows].to(weight.device)
