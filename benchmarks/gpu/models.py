"""The model of random weights that the stages of `benchmarks.gpu` serve, and its adapters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.gpu.cases import SERVED_LENGTH, Setting, Sizes

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
KINDS = 16  # different folders; further adapters share these files, but are loaded and stored separately


def build(setting: Setting, sizes: Sizes, folder: Path, targets: list[str], rank: int, kinds: int) -> list[Path]:
    """Save the model with transformers and some adapters with PEFT, unless they exist; return the adapters' folders."""
    torch.manual_seed(0)
    if not (folder / "base").exists():
        config = LlamaConfig(
            hidden_size=sizes.hidden,
            intermediate_size=sizes.intermediate,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.kv_heads,
            vocab_size=sizes.vocabulary,
            max_position_embeddings=SERVED_LENGTH,
        )
        with torch.device(setting.device):
            LlamaForCausalLM(config).to(setting.dtype).save_pretrained(folder / "base")
    folders = [folder / f"{len(targets)}-linears-rank-{rank}-{kind}" for kind in range(kinds)]
    missing = [each for each in folders if not each.exists()]
    model: Any = load(setting, folder / "base") if missing else None
    for each in missing:
        wrapped = get_peft_model(model, LoraConfig(r=rank, target_modules=targets, init_lora_weights=False))
        wrapped.save_pretrained(each)
        model = wrapped.unload()
    return folders


def load(setting: Setting, base: Path, dtype: torch.dtype | None = None) -> Any:
    """Load the model with transformers."""
    return AutoModelForCausalLM.from_pretrained(base, dtype=dtype or setting.dtype).to(setting.device).eval()


def peft(setting: Setting, base: Path, adapters: Sequence[Path], dtype: torch.dtype | None = None) -> Any:
    """Load the model with PEFT; adapter i is named `a{i}`."""
    model: Any = PeftModel.from_pretrained(load(setting, base, dtype), adapters[0], adapter_name="a0")
    for i, path in enumerate(adapters[1:], 1):
        model.load_adapter(path, adapter_name=f"a{i}")
    return model
