"""Quantized base models.

A quantized linear is called as it is and never taken apart; its computation is defined by the library that made it
(bitsandbytes: QLoRA's NF4, Dettmers et al., 2023, arXiv:2305.14314, section 3; LLM.int8(), Dettmers et al., 2022,
arXiv:2208.07339).
"""

import importlib.util
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.kernels.packed_linear import PackedLinear

_SERVED_METHODS = ("bitsandbytes", "fp8")
_PLAIN = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)


class QuantizationRejected(Exception):
    """This kind of quantization cannot be served; the message says why and what to do."""


def is_models_own(module: nn.Module) -> bool:
    """Return whether a model of transformers defines this kind of layer, which may then do more than its base class.

    For example, Llama 4's router is a linear that returns two tensors.
    """
    return type(module).__module__.startswith("transformers.models.")


def is_quantized(module: nn.Module) -> bool:
    """Return whether a module is a linear layer whose weight is not simply a matrix."""
    return isinstance(module, nn.Linear) and type(module) not in _PLAIN and not is_models_own(module)


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


BaseLinear = PackedLinear | CalledLinears


def loading_options(quantization: str, device: torch.device) -> dict[str, Any]:
    """Return the options with which transformers quantizes at load. Raise QuantizationRejected."""
    if quantization == "none":
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise QuantizationRejected(f"engine.quantization={quantization} needs bitsandbytes, which is not installed")
    from transformers import BitsAndBytesConfig

    config = (
        BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
        if quantization == "int8"
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    )
    return {"quantization_config": config, "device_map": {"": device}}


def check_saved(saved: Any, quantization: str) -> None:
    """Reject a checkpoint's own quantization if it cannot be served, or would be quantized again."""
    if saved is None:
        return
    method = saved.get("quant_method") if isinstance(saved, dict) else getattr(saved, "quant_method", None)
    name = str(getattr(method, "value", method))
    if name not in _SERVED_METHODS:
        raise QuantizationRejected(
            f"its weights are quantized with {name}, which is not supported; use the original weights, and set "
            "engine.quantization=nf4 to save memory"
        )
    if quantization != "none":
        raise QuantizationRejected(f"its weights are already quantized ({name}); leave engine.quantization at none")


def make_rows_independent(model: PreTrainedModel, compute: torch.dtype) -> None:
    """Make a row's result independent of the other rows, and compute in the model's dtype.

    LLM.int8() picks outlier columns over all rows of a batch, so one tenant's tokens would change another's.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns about every product in float32
    modules: Iterable[Any] = model.modules()
    for module in modules:
        if type(module).__name__ == "Linear8bitLt":
            module.state.threshold = 0.0
        elif type(module).__name__ == "Linear4bit":
            module.compute_dtype = compute


def dense_weight(module: nn.Module) -> Tensor:
    """Return the dequantized weight [out, in] of a quantized linear."""
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    quantized: Any = module
    weight: Tensor = dequantize_bnb_weight(quantized.weight, getattr(module, "state", None))
    return weight
