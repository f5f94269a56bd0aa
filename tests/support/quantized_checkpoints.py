"""Tiny checkpoints in the formats in which quantized models are published."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the magnitudes of MXFP4's four bits; the highest bit is the sign
_BLOCK = 32


def save_mxfp4(model: PreTrainedModel, folder: Path) -> dict[str, Tensor]:
    """Save a GPT-OSS as it is published, its experts in random MXFP4, and return their dense weights by name.

    Two numbers of 4 bits are in a byte, the first in the lower half; 32 of them share a power of two, stored with an
    offset of 127 (Open Compute Project, Microscaling Formats 1.0, 2023).
    """
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    generator = torch.Generator().manual_seed(5)
    dense = {}
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        codes = torch.randint(0, 16, (experts, outputs, inputs // _BLOCK, _BLOCK), generator=generator)
        exponents = torch.randint(-5, -2, codes.shape[:3], generator=generator)
        tensors[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponents + 127).to(torch.uint8)
        numbers = torch.tensor([*_E2M1, *(-each for each in _E2M1)])[codes] * 2.0 ** exponents[..., None]
        dense[name] = numbers.flatten(2).transpose(1, 2)
    save_file(tensors, file, {"format": "pt"})
    set_quantization(folder, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
    return dense


def save_fp8(model: PreTrainedModel, folder: Path, block: int = 16) -> None:
    """Save a model as DeepSeek-V3 and others are: the linears of each layer in fp8, with a scale for each block."""
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name]
        blocks = weight.unflatten(0, (-1, block)).unflatten(2, (-1, block))  # [rows, block, columns, block]
        scales = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scales[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scales
    save_file(tensors, file, {"format": "pt"})
    set_quantization(
        folder,
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [block, block]},
    )


def save_compressed(model: PreTrainedModel, folder: Path, *schemes: Mapping[str, Any]) -> None:
    """Save a model with compressed-tensors' own packing; each scheme has fields of its QuantizationScheme.

    Static scales of inputs are 1/16. The model is changed.
    """
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        QuantizationScheme,
        QuantizationStatus,
        apply_quantization_config,
    )
    from compressed_tensors.quantization.utils import calculate_qparams

    groups = {f"group_{i}": QuantizationScheme(**{"targets": ["Linear"]} | each) for i, each in enumerate(schemes)}
    config = QuantizationConfig(config_groups=groups, ignore=["lm_head"])
    apply_quantization_config(model, config, show_progress=False)
    modules: list[Any] = [module for module in model.modules() if hasattr(module, "quantization_scheme")]
    for module in modules:
        arguments = module.quantization_scheme.weights
        weight, scale = module.weight.data, module.weight_scale
        parts = weight if scale.ndim < 2 else weight.reshape(*scale.shape, -1)
        over = (-1,) if scale.ndim == 2 else (0, 1)
        found, zero = calculate_qparams(parts.amin(over), parts.amax(over), arguments)
        scale.data = found.reshape(scale.shape)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data = zero.reshape(scale.shape)
        if hasattr(module, "input_scale"):
            module.input_scale.data.fill_(1 / 16)
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def save_compressed_mixture(model: PreTrainedModel, folder: Path, weights: Mapping[str, Any]) -> None:
    """Save a model with each linear of each expert packed by compressed-tensors, as mixtures are published."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, format="pack-quantized")
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors.pop(name)
        scale = weight.unflatten(1, (-1, weights["group_size"])).abs().amax(-1) / 7.5
        packed = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        tensors |= {name.removesuffix("weight") + part: tensor.contiguous() for part, tensor in packed.items()}
    save_file(tensors, file, {"format": "pt"})
    set_quantization(
        folder,
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {"group_0": scheme.model_dump(mode="json")},
        },
    )


def set_quantization(folder: Path, quantization: dict[str, Any] | None) -> None:
    """Write the `quantization_config` of a saved model."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"quantization_config": quantization}))
