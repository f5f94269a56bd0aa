"""How quantized weights are loaded: those that a checkpoint saves so, and those that are quantized at load.

| saved as | served as |
|---|---|
| bitsandbytes' NF4 or int8 | saved |
| MXFP4 (Open Compute Project, Microscaling Formats 1.0, 2023), as GPT-OSS | dense: the experts are dequantized |
| compressed-tensors | dense where only weights are quantized; else with activations that are rounded to the format |
| fp8 in blocks (DeepSeek-V3, arXiv:2412.19437, section 3.3) | dense on a CPU, saved on a GPU |

Weights that are not saved so become bitsandbytes' while transformers loads them, or fp8 after that (`fp8_loading`).
"""

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import BitsAndBytesConfig, CompressedTensorsConfig, FineGrainedFP8Config, PreTrainedModel
from transformers.utils.quantization_config import Mxfp4Config

from loragate.engine.model.checkpoint import quantization_method

_BITSANDBYTES, _MXFP4, _FP8, _COMPRESSED = "bitsandbytes", "mxfp4", "fp8", "compressed-tensors"
_SERVED = (_BITSANDBYTES, _MXFP4, _FP8, _COMPRESSED)
_EXTRA = "pip install 'loragate[quantized]'"
_PACKAGES = {_BITSANDBYTES: "bitsandbytes", _COMPRESSED: "compressed_tensors"}
_ACTIVATIONS = ("input_activations", "output_activations")
Installed = Callable[[str], bool]


class QuantizationRejected(Exception):
    """This kind of quantization cannot be served; the message says why and what to do."""


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def check_saved(saved: Mapping[str, Any], quantization: str, device: torch.device, installed: Installed) -> None:
    """Raise QuantizationRejected for a checkpoint that cannot be served, or would be quantized a second time."""
    method = quantization_method(saved)
    if method not in _SERVED:
        raise QuantizationRejected(
            f"its weights are quantized with {method}, which is not supported; {', '.join(_SERVED)} are. "
            f"Use it in compressed-tensors ({_EXTRA}), or its original weights with engine.quantization=nf4"
        )
    if quantization != "none":
        raise QuantizationRejected(f"its weights are already quantized ({method}); leave engine.quantization at none")
    _check_installed(method, f"{method} weights need", installed)
    if method == _FP8 and device.type != "cpu" and not installed("kernels"):
        raise QuantizationRejected(
            "fp8 on a GPU needs the package kernels (pip install kernels), which downloads the products in fp8 from "
            "the hub. Without it, use the weights in bfloat16, or saved by compressed-tensors"
        )
    if method == _COMPRESSED:
        _check_compressed(saved)


def _check_installed(method: str, needs: str, installed: Installed) -> None:
    for package in filter(None, (_PACKAGES.get(method), "accelerate")):
        if not installed(package):
            raise QuantizationRejected(f"{needs} {package}, which is not installed ({_EXTRA})")


def _check_compressed(saved: Mapping[str, Any]) -> None:
    """Reject what transformers would not compute, or compute differently for a row in other company."""
    status = saved.get("quantization_status")
    if status != "compressed":
        raise QuantizationRejected(f"its quantization_status is {status}; only compressed weights are served")
    for name in ("kv_cache_scheme", "transform_config", "sparsity_config", "moe_sparsity_config"):
        value = saved.get(name)
        if value and not (name == "sparsity_config" and value.get("format") == "dense"):
            raise QuantizationRejected(f"its quantization_config has a {name}, which is not supported")
    for group in _groups(saved):
        for name in _ACTIVATIONS:
            if _is_scaled_by_batch(group.get(name)):
                raise QuantizationRejected(
                    f"its {name} have one dynamic scale per tensor, that is for the rows of all tenants: one tenant's "
                    "tokens would change another's. Use a checkpoint with a scale per token"
                )
        weights = group.get("weights") or {}
        if weights.get("symmetric") is False and weights.get("num_bits") != 8 and not _has_only_weights(saved):
            raise QuantizationRejected(
                "compressed-tensors cannot load its packed zero points beside rounded activations or in several groups"
            )


def _groups(saved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [group for group in saved.get("config_groups", {}).values() if isinstance(group, Mapping)]


def _has_only_weights(saved: Mapping[str, Any]) -> bool:
    """Return whether one scheme quantizes weights and nothing else, so that transformers can load them dense."""
    groups = _groups(saved)
    return len(groups) == 1 and not any(groups[0].get(name) for name in _ACTIVATIONS)


def _is_scaled_by_batch(arguments: Mapping[str, Any] | None) -> bool:
    """Return whether activations are rounded by a scale that is computed from all rows of a batch."""
    if not arguments or not arguments.get("dynamic"):
        return False
    strategy = arguments.get("strategy")
    return strategy == "tensor" or (strategy is None and arguments.get("group_size") is None)


def loading_options(
    saved: Mapping[str, Any] | None, quantization: str, device: torch.device, installed: Installed = is_installed
) -> dict[str, Any]:
    """Return the options with which transformers loads or makes quantized weights. Raise QuantizationRejected."""
    placed = {"device_map": {"": device}}  # quantized weights lose their scales if they are moved later
    if saved is not None:
        check_saved(saved, quantization, device, installed)
        return placed | dequantizing_options(saved, fp8=device.type == "cpu")
    if quantization in ("none", "fp8"):
        return {}
    _check_installed(_BITSANDBYTES, f"engine.quantization={quantization} needs", installed)
    config = (
        BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
        if quantization == "int8"
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    )
    return placed | {"quantization_config": config}


def dequantizing_options(saved: Mapping[str, Any], *, fp8: bool) -> dict[str, Any]:
    """Return the option with which transformers dequantizes a method's weights while it loads them.

    MXFP4 always is: its kernels replace whole mixtures, and have no place for the adapters of experts and routers.
    """
    if quantization_method(saved) == _MXFP4:
        return {"quantization_config": Mxfp4Config(dequantize=True)}
    if quantization_method(saved) == _FP8 and fp8:
        return {"quantization_config": FineGrainedFP8Config.from_dict({**saved, "dequantize": True})}
    if quantization_method(saved) == _COMPRESSED and _has_only_weights(saved):
        return {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    return {}


@contextmanager
def quiet_loading(saved: Mapping[str, Any] | None) -> Iterator[None]:
    """Keep progress bars of compressed-tensors, which no option turns off, out of the output."""
    if saved is None or quantization_method(saved) != _COMPRESSED:
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield


def finish_loading(model: PreTrainedModel, compute: torch.dtype, *, rounded: bool = True) -> None:
    """Unpack what compressed-tensors would unpack at the first step, and make each row's result independent of others.

    Layers of which only the weights are quantized become plain ones; with `rounded=False`, so do the others, which
    then no longer round their activations.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns about every product in float32
    modules: Iterable[Any] = model.modules()
    for module in modules:
        if type(module).__name__ == "Linear8bitLt":
            module.state.threshold = 0.0  # outlier columns would be picked over all rows of a batch
        elif type(module).__name__ == "Linear4bit":
            module.compute_dtype = compute
        elif getattr(module, "quantization_scheme", None) is not None:
            _decompress(module, compute, rounded=rounded)
    hook = getattr(model, "ct_decompress_hook", None)
    if hook is not None:
        hook.remove()


def _decompress(module: Any, compute: torch.dtype, *, rounded: bool) -> None:
    from compressed_tensors.compressors import decompress_module

    scheme = module.quantization_scheme
    rounded = rounded and (scheme.input_activations is not None or scheme.output_activations is not None)
    decompress_module(module, leave_decompressed=rounded)
    module.weight.data = module.weight.data.to(compute)
    if rounded:
        module.forward = partial(_apply_to_rows, module.forward)


def _apply_to_rows(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a layer to x [..., in] as [1, rows, in]: a scale "per token" is one for all rows of a matrix."""
    return forward(x.reshape(1, -1, x.shape[-1])).view(*x.shape[:-1], -1)
