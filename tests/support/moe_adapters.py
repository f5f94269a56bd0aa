"""Adapters on mixtures of experts: PEFT's possible targets, and files in the layout of transformers 4."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

Options = Callable[[PreTrainedModel], dict[str, Any]]

EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]


def router(model: PreTrainedModel) -> str:
    """Return the name of the router's weight in the model."""
    return "router.weight" if model.config.model_type == "gpt_oss" else "gate.weight"


ADAPTERS: dict[str, Options] = {
    "experts": lambda model: {"r": 4, "target_parameters": EXPERTS, "target_modules": []},
    "up": lambda model: {"r": 8, "target_parameters": EXPERTS[:1], "target_modules": []},
    "down": lambda model: {"r": 2, "target_parameters": EXPERTS[1:], "target_modules": ["q_proj"], "use_rslora": True},
    "router": lambda model: {"r": 4, "target_parameters": [router(model)], "target_modules": []},
    "all": lambda model: {"r": 6, "target_parameters": [*EXPERTS, router(model)]},
    "patterns": lambda model: {
        "r": 4,
        "target_parameters": EXPERTS,
        "rank_pattern": {"gate_up_proj": 16, "layers.1.mlp.experts.down_proj": 1},
        "alpha_pattern": {"down_proj": 3},
    },
    "attention": lambda model: {"r": 64},
}
"""Fields of PEFT's LoraConfig by the case's name."""

_OLD_NAMES = {
    "mixtral": ("block_sparse_moe", ("w1", "w3"), "w2"),
    "qwen3_moe": ("mlp", ("gate_proj", "up_proj"), "down_proj"),
}


def add_old_layout(model: PreTrainedModel, directory: Path, seed: int, rank: int) -> Path:
    """Save an adapter in the layout of transformers 4: a pair of tensors for each linear of each expert."""
    block, branches, down = _OLD_NAMES[model.config.model_type]
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for path, inputs, outputs in _old_linears(model, block, branches, down):
        tensors[f"base_model.model.{path}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) * 0.2
        tensors[f"base_model.model.{path}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator) * 0.2
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 3 * rank,
        "target_modules": ["q_proj", "gate", *branches, down],
    }
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return directory


def _old_linears(
    model: PreTrainedModel, block: str, branches: tuple[str, str], down: str
) -> Iterator[tuple[str, int, int]]:
    """Yield the names in transformers 4, and the numbers of inputs and outputs."""
    for name, module in model.named_modules():
        if name.endswith("q_proj"):
            yield name, module.in_features, module.out_features
        elif name.endswith("gate"):
            yield name.replace(".mlp.", f".{block}."), *reversed(module.weight.shape)
        elif name.endswith("experts"):
            hidden, width = module.down_proj.shape[1:]
            for expert in range(module.num_experts):
                parent = f"{name.replace('.mlp.', f'.{block}.')}.{expert}"
                yield from ((f"{parent}.{branch}", hidden, width) for branch in branches)
                yield f"{parent}.{down}", width, hidden
