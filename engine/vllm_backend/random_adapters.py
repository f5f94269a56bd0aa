"""Random adapters in PEFT's format, with which vLLM is tested."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE
from loragate.peft_format.plan.layout import ModuleKind, TargetModule


def write_random(
    folder: Path,
    ranks: Mapping[TargetModule, int],
    seed: int,
    amplitude: float,
    config: Mapping[str, Any] | None = None,
    blocks: Mapping[str, int] | None = None,
) -> Path:
    """Write an adapter with LoRA of these ranks on these modules, and return its folder.

    `amplitude` is about the size of an output's change relative to its input; with 0, B is zero and changes nothing.
    `config` are further fields of the adapter's config; `blocks` are the diagonal blocks of A by a module's own name.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, rank in ranks.items():
        width = module.in_features // (blocks or {}).get(last_name(module.name), 1)
        a = torch.randn(rank, width, generator=generator)
        b = torch.randn(module.out_features, rank, generator=generator) * amplitude
        if module.kind is ModuleKind.EMBEDDING:
            tensors[f"base_model.model.{module.name}.lora_embedding_A"] = a
            tensors[f"base_model.model.{module.name}.lora_embedding_B"] = b / rank**0.5
        else:
            tensors[f"base_model.model.{module.name}.lora_A.weight"] = a / module.in_features**0.5
            tensors[f"base_model.model.{module.name}.lora_B.weight"] = b / rank**0.5
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS_FILE)
    rank = max(ranks.values())
    targets = sorted({last_name(module.name) for module in ranks})
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "target_modules": targets}
    (folder / CONFIG_FILE).write_text(json.dumps(fields | dict(config or {})))
    return folder


def last_name(path: str) -> str:
    """Return a module's own name, by which PEFT and vLLM choose targets."""
    return path.rpartition(".")[2]
