"""Linears that were quantized to fp8 when the model was loaded."""

import torch
from torch import Tensor, nn

from loragate.engine.layers.scaled_linear import MULTIPLE, ScaledLinear
from loragate.kernels.quantized_rows import quantize


class Fp8Linear(nn.Linear):
    """Replaces an nn.Linear: its weight in e4m3, with a scale for each output. Inputs are rounded to e4m3 as well."""

    weight_scale: Tensor  # [out, 1], float32

    def __init__(self, linear: nn.Linear, device: torch.device) -> None:
        """Quantize the layer's weight on the device; the rest of the layer is still to be moved there."""
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        numbers, scales = quantize(linear.weight.data.to(device), torch.float8_e4m3fn)
        self.weight = nn.Parameter(numbers, requires_grad=False)
        self.register_buffer("weight_scale", scales)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        linear = ScaledLinear(self.weight, self.weight_scale, self.bias)
        return linear(x.reshape(-1, self.in_features)).view(*x.shape[:-1], -1)

    def dequantized(self) -> Tensor:
        """Return the weight [out, in] in float32."""
        return self.weight.data.float() * self.weight_scale


def quantize_linears(model: nn.Module, device: torch.device, keep: nn.Module | None) -> int:
    """Quantize the model's plain linears on the device, except `keep` and those of a size that products in fp8 do not
    take; return their number. Each weight is freed before the next one is read."""
    found = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not keep and _fits(child):
                setattr(parent, name, Fp8Linear(child, device))
                found += 1
    return found


def _fits(linear: nn.Linear) -> bool:
    return linear.in_features % MULTIPLE == linear.out_features % MULTIPLE == 0
