"""A reference implementation of plans: merges them into a plain model's weights in double precision."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from loragate.peft_format.plan.plan import AdapterPlan, EmbeddingPlan, ModulePlan, ParameterPlan, StackedFactors
from loragate.peft_format.safetensors.header import TensorSpec

Read = Callable[[TensorSpec], Tensor]


@torch.no_grad()
def merge(plan: AdapterPlan, read: Read, model: PreTrainedModel) -> PreTrainedModel:
    """Apply the plan to the model. `read` returns a tensor's values."""
    model.double()
    modules = dict(model.named_modules())
    for module in modules.values():  # unties shared weights
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.clone()))
    for path, spec in plan.base_copies.items():
        assert torch.equal(model.get_parameter(path), read(spec)), path
    for name, spec in plan.biases.items():
        modules[name].bias.copy_(read(spec))
    for name, replaced in plan.replaced.items():
        for parameter, spec in replaced.parameters.items():
            modules[name].get_parameter(parameter).copy_(read(spec))
    for tokens in plan.trained_tokens.values():
        for module in tokens.modules:
            modules[module.name].weight[list(tokens.token_ids)] = read(tokens.rows)
    for name, linear in plan.modules.items():
        _merge_linear(linear, read, modules[name])
    for name, embedding in plan.embeddings.items():
        _merge_embedding(embedding, read, modules[name])
    for path, parameter_plan in plan.parameters.items():
        model.get_parameter(path).add_(_delta(parameter_plan, read))
    return model


def _blocks(matrix: Tensor, blocks: int) -> Tensor:
    return torch.block_diag(*matrix.chunk(blocks))


def _merge_linear(plan: ModulePlan, read: Read, module: nn.Module) -> None:
    weight = module.weight.T if isinstance(module, Conv1D) else module.weight
    weight += plan.scaling * _blocks(read(plan.lora_b), plan.b_blocks) @ _blocks(read(plan.lora_a), plan.a_blocks)
    if plan.magnitude is not None:
        weight *= (read(plan.magnitude) / weight.norm(dim=1))[:, None]
    if plan.bias is not None:
        old = 0 if module.bias is None else module.bias
        module.bias = nn.Parameter(old + plan.scaling * read(plan.bias))


def _merge_embedding(plan: EmbeddingPlan, read: Read, module: nn.Module) -> None:
    module.weight += plan.scaling * (read(plan.lora_b) @ read(plan.lora_a)).T
    if plan.magnitude is not None:
        module.weight *= read(plan.magnitude) / module.weight.norm(dim=0)


def _delta(plan: ParameterPlan, read: Read) -> Tensor:
    """Return the update in the parameter's own shape."""
    if isinstance(plan.factors, StackedFactors):
        a = read(plan.factors.lora_a).reshape(plan.experts, plan.rank, plan.in_features)
        b = read(plan.factors.lora_b).reshape(plan.out_features, plan.rank, plan.experts)
        delta = torch.einsum("ore,eri->eoi", b, a)
    else:
        delta = torch.zeros(plan.experts, plan.out_features, plan.in_features, dtype=torch.float64)
        for expert, branches in enumerate(plan.factors.experts):
            for branch in branches:
                part = read(branch.lora_b) @ read(branch.lora_a)
                delta[expert, branch.out_start : branch.out_start + part.shape[0]] = part
    delta = plan.scaling * (delta.mT if plan.parameter.transposed and len(plan.parameter.shape) == 3 else delta)
    return delta.reshape(plan.parameter.shape)
