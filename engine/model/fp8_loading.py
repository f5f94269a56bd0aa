"""Which models are quantized to fp8 when they are loaded, and where."""

import torch
from transformers import PreTrainedModel

from loragate.engine.layers.experts import is_mixture
from loragate.engine.layers.fp8_linear import quantize_linears
from loragate.engine.model.quantized_loading import QuantizationRejected
from loragate.kernels import gpu

_CAPABILITY = (8, 9)


def check_fp8(device: torch.device, dtype: torch.dtype) -> None:
    """Raise QuantizationRejected where torch has no products in fp8 with a scale for each row and output."""
    if device.type == "cpu":
        return
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < _CAPABILITY:
        raise QuantizationRejected(
            "engine.quantization=fp8 needs a GPU of compute capability 8.9 or higher (Ada, Hopper and newer); this one "
            f"has {major}.{minor}. Use nf4 or int8 here"
        )
    if not gpu.available():
        raise QuantizationRejected("engine.quantization=fp8 needs triton on a GPU, which is not installed")
    if dtype != torch.bfloat16:
        name = str(dtype).removeprefix("torch.")
        raise QuantizationRejected(
            f"engine.quantization=fp8 computes in bfloat16 on a GPU, not in {name}: set engine.dtype=bfloat16"
        )


def quantize_to_fp8(model: PreTrainedModel, device: torch.device) -> None:
    """Quantize all linears but the head. Raise QuantizationRejected for models whose weights are elsewhere."""
    if is_mixture(model):
        raise QuantizationRejected(
            "engine.quantization=fp8 does not quantize experts, which are most of a mixture's weights; leave it at none"
        )
    if not quantize_linears(model, device, model.get_output_embeddings()):
        raise QuantizationRejected(
            "engine.quantization=fp8 finds no linear layer whose sizes are multiples of 16; leave it at none"
        )
