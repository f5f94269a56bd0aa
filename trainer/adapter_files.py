"""PEFT's two files of an adapter: adapter_config.json and adapter_model.safetensors."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO

import torch
from safetensors.torch import load, save

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind
from loragate.peft_format.plan.plan import ModulePlan
from loragate.peft_format.read import read_adapter
from loragate.trainer.adapter import Adapter, LoraSettings, LoraShape, Shapes, empty_adapter
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.targets import Targets

_PREFIX = "base_model.model."


def write(adapter: Adapter, layout: BaseLayout) -> tuple[bytes, bytes]:
    """Return both files."""
    tensors = {}
    for name, a, b in adapter.layout.factors(adapter.buffer.flat):
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = a.cpu().contiguous()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = b.cpu().contiguous()
    config = json.dumps(_config(adapter, layout), indent=2, sort_keys=True)
    return config.encode(), save(tensors, {"format": "pt"})


def _config(adapter: Adapter, layout: BaseLayout) -> Mapping[str, object]:
    rank, alpha = adapter.settings.rank, adapter.settings.alpha
    shapes = adapter.shapes
    alphas = {name: shape.scaling * shape.rank for name, shape in shapes.items()}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: shape.rank for name, shape in shapes.items() if shape.rank != rank},
        "alpha_pattern": {name: each for name, each in alphas.items() if not math.isclose(each, alpha)},
        "target_modules": _short_names(shapes, layout),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(layout.modules[name].kind is ModuleKind.CONV1D for name in shapes),
        "inference_mode": True,
    }


def _short_names(shapes: Shapes, layout: BaseLayout) -> list[str]:
    """Return the last parts of the names, where no other module of the model ends in them, else the names."""
    everywhere = Counter(_last(name) for name in layout.modules)
    targeted = Counter(_last(name) for name in shapes)
    if all(everywhere[last] == count for last, count in targeted.items()):
        return sorted(targeted)
    return sorted(shapes)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def read(config_json: bytes, tensors: bytes, layout: BaseLayout, targets: Targets, device: torch.device) -> Adapter:
    """Return the adapter of PEFT's files. Raise TrainingRejected for one that cannot be trained further here."""
    try:
        plan = read_adapter(config_json, BytesIO(tensors), len(tensors), layout).plan
    except AdapterRejected as error:
        raise TrainingRejected(f"adapter: {error}") from None
    biased = next((name for name, each in plan.modules.items() if each.bias is not None), None)
    if biased is not None:
        raise TrainingRejected(f"adapter: {biased} has a bias (lora_bias), which is not trained here")
    if not plan.modules:
        raise TrainingRejected("adapter: has no LoRA on modules that are trained here")
    shapes = {name: LoraShape(each.rank, each.scaling) for name, each in plan.modules.items()}
    adapter = empty_adapter(_settings(plan.modules, targets), shapes, targets, device)
    values = load(tensors)
    for name, a, b in adapter.layout.factors(adapter.buffer.flat):
        module = plan.modules[name]
        a.copy_(values[module.lora_a.name])
        b.copy_(values[module.lora_b.name])
    return adapter


def _settings(modules: Mapping[str, ModulePlan], targets: Targets) -> LoraSettings:
    """Return the settings that come closest: the largest rank, its alpha, and the roles that are targeted."""
    largest = max(modules.values(), key=lambda module: module.rank)
    settings = LoraSettings(largest.rank, 0, largest.scaling * largest.rank)
    has = {role: any(name in modules for name in names) for role, names in targets.by_role.items()}
    return replace(settings, train_mlp=has["mlp"], train_attn=has["attn"], train_unembed=has["unembed"])
