"""A small mixture of experts, its manifest, and one adapter of each kind that PEFT saves."""

from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora.config import BdLoraConfig
from safetensors.torch import load_file, save_file
from tiny_models import add_adapter, make_model
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from loragate.engine.model.manifest import SERVES, module_message, parameter_message, targets
from loragate.v1 import engine_pb2 as pb
from tests.attacks.adapter_files import Files
from tests.gateway import tiny_model

ATTENTION = ["q_proj", "v_proj"]
EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
BLOCKS = BdLoraConfig(target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj"], nblocks=4)

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ATTENTION},
    "rank-stabilised": {"target_modules": ATTENTION, "use_rslora": True, "rank_pattern": {"v_proj": 2}},
    "biased": {"target_modules": ATTENTION, "lora_bias": True},
    "dora": {"target_modules": ATTENTION, "use_dora": True},
    "saved": {"target_modules": ATTENTION, "modules_to_save": ["lm_head", "model.norm"]},
    "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
    "tokens": {"target_modules": ATTENTION, "trainable_token_indices": [5, 6]},
    "experts": {"target_modules": [], "target_parameters": EXPERTS},
    "alora": {"target_modules": ATTENTION, "alora_invocation_tokens": [7, 8]},
    "blocks": {"target_modules": ["q_proj", "o_proj"], "use_bdlora": BLOCKS},
}
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Plain adapters in these dtypes are kinds as well."""


def base() -> PreTrainedModel:
    return make_model("qwen3_moe")


def manifest(model: PreTrainedModel, tokenizer: Tokenizer) -> pb.Manifest:
    """A manifest of everything that an adapter may change, all of it servable."""
    found = targets(model)
    said = tiny_model.manifest(tokenizer)
    del said.modules[:]
    said.modules.extend(map(module_message, found.modules))
    said.parameters.extend(map(parameter_message, found.parameters))
    said.model_type, said.num_layers = model.config.model_type, model.config.num_hidden_layers
    said.adapter_kinds.extend(sorted(SERVES))
    said.input_embedding, said.output_head, said.dtype = found.input_embedding, found.head, "float32"
    return said


def adapters(model: PreTrainedModel, folder: Path) -> dict[str, Files]:
    """Adapters by kind, all of them valid."""
    made = {}
    for seed, (kind, options) in enumerate(KINDS.items()):
        made[kind] = _read(add_adapter(model, folder / kind, seed, r=4, **options))
    for kind, dtype in HALVES.items():
        halved = add_adapter(model, folder / kind, 0, r=4, **KINDS["plain"])
        values = {name: value.to(dtype) for name, value in load_file(halved / "adapter_model.safetensors").items()}
        save_file(values, halved / "adapter_model.safetensors", {"format": "pt"})
        made[kind] = _read(halved)
    return made


def _read(folder: Path) -> Files:
    return Files(
        (folder / "adapter_config.json").read_bytes(),
        (folder / "adapter_model.safetensors").read_bytes(),
    )
