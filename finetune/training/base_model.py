"""The frozen base model under the adapter in training."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from loragate.engine.model.checkpoint import saved_quantization
from loragate.engine.model.quantized_loading import dequantizing_options, finish_loading, quiet_loading


def load_base(folder: Path, quantization: str, device: torch.device) -> PreTrainedModel:
    """Load the base model; on CPU, computation is in fp32.

    With `nf4`, the weights are 4-bit NormalFloat with quantized constants (QLoRA, arXiv:2305.14314). Weights that are
    saved quantized are not quantized again: they are dequantized, or stay in bitsandbytes' format.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    saved = saved_quantization(folder)
    options = _nf4(quantization, dtype) if saved is None else dequantizing_options(saved, fp8=True)
    with quiet_loading(saved):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map={"": device},
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            **options,
        )
    finish_loading(model, dtype, rounded=False)
    model.config.use_cache = False
    if (options or saved) and device.type == "cpu":
        _copy_unquantized(model)
    return model


def _nf4(quantization: str, compute: torch.dtype) -> dict[str, BitsAndBytesConfig]:
    if quantization != "nf4":
        return {}
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )
    return {"quantization_config": config}


def _copy_unquantized(model: PreTrainedModel) -> None:
    """Copy the parameters that were not quantized: as views they would keep the whole mapped checkpoint resident."""
    for parameter in model.parameters():
        if parameter.dtype.is_floating_point:
            parameter.data = parameter.data.clone()
