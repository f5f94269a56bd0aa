"""The frozen base model under an adapter in training."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel


def load_base(folder: Path, quantization: str, device: torch.device) -> PreTrainedModel:
    """`nf4`: 4-bit NormalFloat, its constants quantised too (QLoRA, arXiv:2305.14314). CPUs compute in fp32."""
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
        _let_go_of_the_file(model)
    return model


def _let_go_of_the_file(model: PreTrainedModel) -> None:
    """What was not quantised is a view into the checkpoint's mapping still, and would keep all of it resident."""
    for parameter in model.parameters():
        if parameter.dtype.is_floating_point:
            parameter.data = parameter.data.clone()
