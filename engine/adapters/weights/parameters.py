"""Conversion of the tensors of `target_parameters` to patches of experts and routers."""

from collections.abc import Mapping

import torch
from safetensors import safe_open
from torch import Tensor

from loragate.engine.layers.patch import Patch, Patchable
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.peft_format.plan.plan import Branch, ParameterPlan, SplitFactors, StackedFactors
from loragate.peft_format.safetensors.header import TensorSpec


def parameter_patches(
    plans: Mapping[str, ParameterPlan], targets: Mapping[str, Patchable], file: safe_open, dtype: torch.dtype
) -> dict[Patchable, Patch]:
    """Return a patch for each targeted parameter; both mappings are by the parameter's path."""
    return {targets[path]: _patch(plan, file, dtype) for path, plan in plans.items()}


def _patch(plan: ParameterPlan, file: safe_open, dtype: torch.dtype) -> Patch:
    if isinstance(plan.factors, StackedFactors):
        a, b = _stacked(plan, plan.factors, file)
    else:
        a, b = _split(plan, plan.factors, file)
    a, b = a.to(dtype).contiguous(), (b * plan.scaling).to(dtype).contiguous()
    if len(plan.parameter.shape) == 2:
        return LoraWeights(a[0], (Expand(0, plan.rank, 0, b[0]),))
    return ExpertFactors(a, b)


def _stacked(plan: ParameterPlan, factors: StackedFactors, file: safe_open) -> tuple[Tensor, Tensor]:
    """Return A [experts, rank, in] and B [experts, rank, out]. PEFT stacks A by expert, but B by rank."""
    a = _read(file, factors.lora_a).reshape(plan.experts, plan.rank, plan.in_features)
    b = _read(file, factors.lora_b).reshape(plan.out_features, plan.rank, plan.experts)
    return a, b.permute(2, 1, 0)


def _split(plan: ParameterPlan, factors: SplitFactors, file: safe_open) -> tuple[Tensor, Tensor]:
    a = torch.zeros(plan.experts, plan.rank, plan.in_features)
    b = torch.zeros(plan.experts, plan.rank, plan.out_features)
    for expert, branches in enumerate(factors.experts):
        _fill(a[expert], b[expert], branches, file)
    return a, b


def _fill(a: Tensor, b: Tensor, branches: tuple[Branch, ...], file: safe_open) -> None:
    """Fill one expert's A [rank, in] with its branches' stacked, and its B [rank, out] with theirs block-diagonal."""
    start = 0
    for branch in branches:
        branch_a, branch_b = _read(file, branch.lora_a), _read(file, branch.lora_b).T
        rank, out = branch_b.shape
        a[start : start + rank] = branch_a
        b[start : start + rank, branch.out_start : branch.out_start + out] = branch_b
        start += rank


def _read(file: safe_open, spec: TensorSpec) -> Tensor:
    tensor: Tensor = file.get_tensor(spec.name)
    return tensor.float()
