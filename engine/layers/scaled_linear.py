"""A linear layer whose weight and input are multiplied in eight bits.

Weights are e4m3 (Micikevicius et al., 2022, "FP8 formats for deep learning", arXiv:2209.05433) with one scale for each
output, and inputs with one for each row, so that no row depends on others. Both scales are factors of the sums, and
torch applies them in the product's own kernel. On a CPU, the same numbers are multiplied in float32: torch's operator
takes longer there, and adds up in another order for more rows.
"""

import torch
from torch import Tensor

from loragate.kernels import gpu
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.quantized_rows import QuantizedRows, quantize

if gpu.available():
    from loragate.kernels.gpu import quantize_rows as gpu_rows

MULTIPLE = 16  # numbers, of which a GPU's products need a multiple in both sizes of a weight


class ScaledLinear:
    """y = x @ weightᵀ + bias for x [rows, in]; weight [out, in] in e4m3, its scales [out, 1], bias [out] or None."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight, self._scales, self._bias = weight, scales.view(1, -1), bias
        self._packed = None if gpu.serves(weight.device) else PackedLinear(weight.float(), None)

    def __call__(self, x: Tensor) -> Tensor:
        rows = gpu_rows.quantize_rows(x) if gpu.serves(x.device) else _quantize(x)
        return self.product(rows, x.dtype)

    def product(self, x: QuantizedRows, dtype: torch.dtype) -> Tensor:
        """Compute the same from rows that are already quantized, and return it in `dtype`."""
        if self._packed is None:
            return torch._scaled_mm(
                x.numbers, self._weight.t(), scale_a=x.scales, scale_b=self._scales, bias=self._bias, out_dtype=dtype
            )
        y = self._packed(x.numbers.float()) * x.scales * self._scales
        return (y if self._bias is None else y + self._bias).to(dtype)


def _quantize(x: Tensor) -> QuantizedRows:
    return QuantizedRows(*quantize(x, torch.float8_e4m3fn))
