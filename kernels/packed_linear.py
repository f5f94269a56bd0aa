"""A linear layer whose weight is kept in the layout that the CPU's matmul reads fastest.

oneDNN's blocked layout makes small batches 2–3 times faster than `F.linear`, and makes a row's result independent of
how many rows are computed with it. The operators are private to torch, so they are probed first.
"""

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ROWS = 128  # a GPU reads a weight for this many rows about as fast as for one
_HINT_ROWS = 16  # the batch size that the blocked layout is optimized for; decode batches are about that large


class PackedLinear:
    """y = x @ weightᵀ + bias for x [rows, in]; weight [out, in], bias [out] or None.

    `packed` is true if the weight was copied into a layout of its own, so that the original is no longer needed.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self.packed = _can_pack(weight.device.type, weight.dtype)
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _HINT_ROWS) if self.packed else weight
        )

    def __call__(self, x: Tensor) -> Tensor:
        if not self.packed:
            return F.linear(x, self._weight, self._bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y


def in_blocks(linear: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute x [rows, in] → [rows, out] in products of `BLOCK_ROWS` rows each, the last filled up with zeros.

    cuBLAS chooses tiles and the order of sums by the number of rows. With the same number in all products, a row's
    result does not depend on the rows beside it.
    """
    rows = x.shape[0]
    spare = -rows % BLOCK_ROWS
    whole = F.pad(x, (0, 0, 0, spare)) if spare else x
    parts = [linear(block) for block in whole.split(BLOCK_ROWS)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[:rows]


@cache
def _can_pack(device: str, dtype: torch.dtype) -> bool:
    """Return whether this build of torch has the operators, and they compute the result of `F.linear`."""
    if device != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 40, generator=generator).to(dtype)
    bias = torch.randn(24, generator=generator).to(dtype)
    x = torch.randn(3, 40, generator=generator).to(dtype)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _HINT_ROWS)
        y = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    tolerance = 1e-4 if dtype == torch.float32 else 0.25
    return torch.allclose(y, F.linear(x, weight, bias), atol=tolerance)
