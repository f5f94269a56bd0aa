"""From the tensors of `target_parameters` to the patches of experts and routers."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from loragate.engine.patch import Patch, Patchable
from loragate.kernels.segmented_experts import ExpertFactors
from loragate.kernels.segmented_lora import Expand, LoraWeights
from loragate.peft_format.plan import Branch, ParameterPlan, SplitFactors, StackedFactors

Read = Callable[[str], Tensor]
"""A tensor of the adapter's file, by name, in float32."""


def parameter_patches(
    plans: Mapping[str, ParameterPlan], targets: Mapping[str, Patchable], read: Read, dtype: torch.dtype
) -> dict[Patchable, Patch]:
    """A patch for each targeted parameter; both mappings are by the parameter's path."""
    return {targets[path]: _patch(plan, read, dtype) for path, plan in plans.items()}


def _patch(plan: ParameterPlan, read: Read, dtype: torch.dtype) -> Patch:
    if isinstance(plan.factors, StackedFactors):
        a, b = _stacked(plan, plan.factors, read)
    else:
        a, b = _split(plan, plan.factors, read)
    a, b = a.to(dtype).contiguous(), (b * plan.scaling).to(dtype).contiguous()
    if len(plan.parameter.shape) == 2:
        return LoraWeights(a[0], (Expand(0, plan.rank, 0, b[0]),))
    return ExpertFactors(a, b)


def _stacked(plan: ParameterPlan, factors: StackedFactors, read: Read) -> tuple[Tensor, Tensor]:
    """[experts, in, rank] and [experts, rank, out]. PEFT stacks A by expert, but B by rank."""
    a = read(factors.lora_a.name).reshape(plan.experts, plan.rank, plan.in_features)
    b = read(factors.lora_b.name).reshape(plan.out_features, plan.rank, plan.experts)
    return a.transpose(1, 2), b.permute(2, 1, 0)


def _split(plan: ParameterPlan, factors: SplitFactors, read: Read) -> tuple[Tensor, Tensor]:
    a = torch.zeros(plan.experts, plan.in_features, plan.rank)
    b = torch.zeros(plan.experts, plan.rank, plan.out_features)
    for expert, branches in enumerate(factors.experts):
        _fill(a[expert], b[expert], branches, read)
    return a, b


def _fill(a: Tensor, b: Tensor, branches: tuple[Branch, ...], read: Read) -> None:
    """One expert's A as its branches' side by side, its B block-diagonal: [in, rank] and [rank, out]."""
    start = 0
    for branch in branches:
        branch_a, branch_b = read(branch.lora_a.name).T, read(branch.lora_b.name).T
        rank, out = branch_b.shape
        a[:, start : start + rank] = branch_a
        b[start : start + rank, branch.out_start : branch.out_start + out] = branch_b
        start += rank
