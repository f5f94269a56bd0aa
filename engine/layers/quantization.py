"""Quantized linears.

Those in our own fp8 are fused with their siblings. Any other is called as it is and never taken apart; its computation
is defined by the library that made it
(bitsandbytes: QLoRA's NF4, Dettmers et al., 2023, arXiv:2305.14314, section 3; LLM.int8(), Dettmers et al., 2022,
arXiv:2208.07339; compressed-tensors; transformers' fp8 in blocks).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loragate.engine.layers.fp8_linear import Fp8Linear
from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.kernels.packed_linear import PackedLinear

_PLAIN = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)


def is_models_own(module: nn.Module) -> bool:
    """Return whether a model of transformers defines this kind of layer, which may then do more than its base class.

    For example, Llama 4's router is a linear that returns two tensors.
    """
    return type(module).__module__.startswith("transformers.models.")


def is_quantized(module: nn.Module) -> bool:
    """Return whether a module is a linear layer that does not simply multiply by a matrix."""
    if not isinstance(module, nn.Linear) or is_models_own(module):
        return False
    return type(module) not in _PLAIN or getattr(module, "quantization_scheme", None) is not None


def is_quantized_model(model: nn.Module) -> bool:
    return any(is_quantized(module) for module in model.modules())


class CalledLinears:
    """Sibling linears called one by one, their outputs side by side: the counterpart of `PackedLinear`."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules

    def __call__(self, x: Tensor) -> Tensor:
        if len(self._modules) == 1:
            y: Tensor = self._modules[0](x)
            return y
        return torch.cat([module(x) for module in self._modules], dim=-1)


BaseLinear = PackedLinear | ScaledLinear | CalledLinears


def dense_weight(module: nn.Module) -> Tensor:
    """Return the dequantized weight [out, in] of a quantized linear."""
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    if isinstance(module, Fp8Linear):
        return module.dequantized()
    quantized: Any = module
    if hasattr(module, "weight_scale_inv"):
        return _fp8_weight(quantized)
    # compressed-tensors' weights are dense already
    weight: Tensor = dequantize_bnb_weight(quantized.weight, getattr(module, "state", None))
    return weight


def _fp8_weight(module: Any) -> Tensor:
    """Return an fp8 weight times the scales of its blocks, or its only scale, in float32."""
    weight: Tensor = module.weight.data.float()
    scale: Tensor = module.weight_scale_inv.data.float()
    if module.block_size is None:
        return weight * scale
    rows, columns = module.block_size
    blocks = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return weight * blocks[: weight.shape[0], : weight.shape[1]]
