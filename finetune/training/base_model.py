"""The frozen base model under the adapter in training."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel


def load_base(folder: Path, quantization: str, device: torch.device) -> PreTrainedModel:
    """Load the base model; on CPU, computation is in fp32.

    With `nf4`, the weights are 4-bit NormalFloat with quantized constants (QLoRA, arXiv:2305.14314).
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = None
    if quantization == "nf4":
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder,
        quantization_config=config,
        dtype=dtype,
        device_map={"": device},
        attn_implementation="sdpa",
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
    )
    model.config.use_cache = False
    if config is not None and device.type == "cpu":
        _copy_unquantized(model)
    return model


def _copy_unquantized(model: PreTrainedModel) -> None:
    """Copy the parameters that were not quantized: as views they would keep the whole mapped checkpoint resident."""
    for parameter in model.parameters():
        if parameter.dtype.is_floating_point:
            parameter.data = parameter.data.clone()
