"""From an adapter's two files to the weights of each fused module, in the layout that the kernels read."""

from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from loragate.engine.base_model import BaseModel
from loragate.engine.lora_linear import LoraGroup, Member
from loragate.engine.parameter_weights import parameter_patches
from loragate.engine.patch import HostAdapter, Patch, Patchable, pack
from loragate.kernels.segmented_lora import Affine, Expand, LoraWeights
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


def load_weights(directory: Path, plan: AdapterPlan, base: BaseModel) -> HostAdapter:
    """Read the tensors and lay them out: A of all targets of a group side by side as [in, ranks], each B as
    [rank, out] with the scaling in it."""
    by_group: dict[LoraGroup, list[tuple[Member, ModulePlan]]] = defaultdict(list)
    for name, module_plan in plan.modules.items():
        group = base.group_of[name]
        by_group[group].append((next(m for m in group.members if m.name == name), module_plan))
    with safe_open(directory / TENSORS_FILE, framework="pt") as file:
        patches: dict[Patchable, Patch] = {
            group: _fuse(targets, file, base.adapter_dtype) for group, targets in by_group.items()
        }
        patches |= parameter_patches(plan.parameters, base.parameter_of, file, base.adapter_dtype)
    return pack(patches, pinned=base.device.type == "cuda")


def _fuse(targets: list[tuple[Member, ModulePlan]], file: safe_open, dtype: torch.dtype) -> LoraWeights:
    def read(name: str) -> Tensor:
        tensor: Tensor = file.get_tensor(name)
        return tensor.float()

    columns, expands, affines, start = [], [], [], 0
    for member, plan in targets:
        columns.append(read(plan.lora_a.name).T)
        b = (read(plan.lora_b.name).T * plan.scaling).to(dtype).contiguous()
        expands.append(Expand(start, start + plan.rank, member.out_start, b))
        if plan.bias is not None:
            affines.append(Affine(member.out_start, (read(plan.bias.name) * plan.scaling).to(dtype)))
        start += plan.rank
    return LoraWeights(torch.cat(columns, dim=1).to(dtype).contiguous(), tuple(expands), tuple(affines))
