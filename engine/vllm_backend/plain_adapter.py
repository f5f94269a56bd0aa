"""An adapter in the plainest form of PEFT's format, which every reader of it understands alike.

vLLM reads adapters by its own rules. What our plan says of ranks, scalings, patterns and blocks is computed here, so
that one reading decides, ours: every scaling is 1, and every module is named in full by its tensors.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from loragate.engine.adapters.token_cost import token_cost
from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan

PLAIN_KINDS = frozenset({AdapterKind.BLOCK_DIAGONAL, AdapterKind.EMBEDDING})
"""The kinds that a plain adapter can express. Which of them vLLM computes rightly is for the attach test to say."""


@dataclass(frozen=True, slots=True)
class PlainAdapter:
    """A written adapter; `token_cost` is as in `adapters.token_cost`."""

    folder: Path
    rank: int
    token_cost: float


def write_plain(source: Path, plan: AdapterPlan, layout: BaseLayout, folder: Path) -> PlainAdapter:
    """Write the adapter in `source`, whose plan is given, to `folder`."""
    assert plan.kinds <= PLAIN_KINDS, "the layout lets no other kinds through"
    with safe_open(source / TENSORS_FILE, framework="pt") as file:
        tensors = _tensors(plan, file)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS_FILE)
    rank = max(1, plan.max_rank)
    targets = sorted({name.rpartition(".")[2] for name in (*plan.modules, *plan.embeddings)})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "target_modules": targets}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    return PlainAdapter(folder, plan.max_rank, token_cost(plan, layout))


def _tensors(plan: AdapterPlan, file: safe_open) -> dict[str, Tensor]:
    """Return the tensors by name, float32."""
    tensors = {}
    for name, module in plan.modules.items():
        lora_a = _dense(file.get_tensor(module.lora_a.name), module.a_blocks)
        lora_b = _dense(file.get_tensor(module.lora_b.name), module.b_blocks)
        tensors[f"base_model.model.{name}.lora_A.weight"] = lora_a
        tensors[f"base_model.model.{name}.lora_B.weight"] = lora_b * module.scaling
    for name, embedding in plan.embeddings.items():
        tensors[f"base_model.model.{name}.lora_embedding_A"] = file.get_tensor(embedding.lora_a.name).float()
        scaled = file.get_tensor(embedding.lora_b.name).float() * embedding.scaling
        tensors[f"base_model.model.{name}.lora_embedding_B"] = scaled
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _dense(stored: Tensor, blocks: int) -> Tensor:
    """Return the whole matrix of one that is stored as its diagonal blocks."""
    whole: Tensor = torch.block_diag(*stored.float().chunk(blocks))
    return whole
