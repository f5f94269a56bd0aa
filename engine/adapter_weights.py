"""From an adapter's two files to the weights of each fused module, in the layout that the kernels read."""

from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from loragate.engine.adapter_pool import AdapterWeights
from loragate.engine.base_model import BaseModel
from loragate.engine.lora_linear import LoraGroup, Member
from loragate.kernels.segmented_lora import Expand, LoraWeights
from loragate.peft_format.layout import BaseLayout
from loragate.peft_format.plan import AdapterPlan, ModulePlan
from loragate.peft_format.reading import AdapterReading, read_adapter

CONFIG_FILE = "adapter_config.json"
TENSORS_FILE = "adapter_model.safetensors"


def read_files(directory: Path, layout: BaseLayout) -> AdapterReading:
    """Check an adapter's two files against the base model. Raises peft_format's AdapterRefused."""
    path = directory / TENSORS_FILE
    with path.open("rb") as file:
        return read_adapter((directory / CONFIG_FILE).read_bytes(), file, path.stat().st_size, layout)


def load_weights(directory: Path, plan: AdapterPlan, base: BaseModel) -> AdapterWeights:
    """Read the tensors and lay them out: A of all targets of a group side by side as [in, ranks], each B as
    [rank, out] with the scaling in it."""
    by_group: dict[LoraGroup, list[tuple[Member, ModulePlan]]] = defaultdict(list)
    for name, module_plan in plan.modules.items():
        group = base.group_of[name]
        by_group[group].append((next(m for m in group.members if m.name == name), module_plan))
    with safe_open(directory / TENSORS_FILE, framework="pt") as file:
        return {group: _fuse(targets, file, base) for group, targets in by_group.items()}


def _fuse(targets: list[tuple[Member, ModulePlan]], file: safe_open, base: BaseModel) -> LoraWeights:
    def read(name: str) -> Tensor:
        tensor: Tensor = file.get_tensor(name)
        return tensor.to(base.device, torch.float32)

    columns, expands, start = [], [], 0
    for member, plan in targets:
        columns.append(read(plan.lora_a.name).T)
        bias = None if plan.bias is None else (read(plan.bias.name) * plan.scaling).to(base.dtype)
        b = (read(plan.lora_b.name).T * plan.scaling).to(base.dtype).contiguous()
        expands.append(Expand(start, start + plan.rank, member.out_start, b, bias))
        start += plan.rank
    return LoraWeights(torch.cat(columns, dim=1).to(base.dtype).contiguous(), tuple(expands))
