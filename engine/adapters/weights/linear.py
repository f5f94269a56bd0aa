"""An adapter's changes to one group of fused linear layers, in the layout that the kernels read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.adapters.weights.dora import row_scale
from loragate.engine.layers.lora_linear import LoraGroup, Member, weight_and_bias
from loragate.kernels.base_output import Affine, BaseChange, Dense, DenseOutputs
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.memory_advice import page_out
from loragate.kernels.packed_linear import PackedLinear
from loragate.peft_format.plan.layout import ModuleKind
from loragate.peft_format.plan.plan import AdapterPlan, ModulePlan
from loragate.peft_format.safetensors.header import TensorSpec

Read = Callable[[TensorSpec], Tensor]
"""Returns a tensor of the adapter's file, as stored."""


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of an adapter's weights on the device: of low-rank factors and other small tensors, and of whole
    weights."""

    small: torch.dtype
    whole: torch.dtype


def linear_weights(group: LoraGroup, plan: AdapterPlan, read: Read, dtypes: Dtypes) -> LoraWeights | None:
    """Return the weights of a group, or None if the adapter does not change it.

    They are the A of all targets stacked as [ranks, in], each B as [rank, out] with its scaling applied, and the
    changes to the base output in the order in which they apply.
    """
    factors: list[Tensor] = []
    expands: list[Expand] = []
    affines: list[Affine] = []
    dense: list[BaseChange] = []
    start = 0
    for member in group.members:
        lora, scale = plan.modules.get(member.name), None
        if lora is not None:
            a, b = _factors(lora, read)
            if lora.magnitude is not None:
                scale = _dora_scale(group, member, a, b, read(lora.magnitude).float())
                b = scale[:, None] * b
            factors.append(a)
            expands.append(Expand(start, start + lora.rank, member.out_start, b.T.to(dtypes.small).contiguous()))
            start += lora.rank
        affines += _affine(member, plan, scale, read)
        dense += _dense(member, plan, read, dtypes.whole)
    if not (expands or affines or dense):
        return None
    changes = (*_joined(affines, dtypes.small), *dense)
    a = torch.cat(factors) if factors else torch.empty(0, group.in_features)
    return LoraWeights(a.to(dtypes.small).contiguous(), tuple(expands), changes)


def _factors(lora: ModulePlan, read: Read) -> tuple[Tensor, Tensor]:
    """Return A [rank, in] and B [out, rank] with its scaling applied, float32, with block-diagonals padded with
    zeros."""
    a, b = read(lora.lora_a).float(), read(lora.lora_b).float() * lora.scaling
    if lora.a_blocks > 1:
        a = torch.block_diag(*a.chunk(lora.a_blocks))
    if lora.b_blocks > 1:
        b = torch.block_diag(*b.chunk(lora.b_blocks))
    return a, b


def _dora_scale(group: LoraGroup, member: Member, a: Tensor, b: Tensor, magnitude: Tensor) -> Tensor:
    weight, _ = weight_and_bias(member.base)
    scale = row_scale(weight, a, b, magnitude)
    if isinstance(group.linear, PackedLinear) and group.linear.packed:
        page_out(weight)  # back to disk
    return scale


def _affine(member: Member, plan: AdapterPlan, scale: Tensor | None, read: Read) -> Iterator[Affine]:
    """Yield the change from W · x + the base bias to scale · W · x + the bias in effect."""
    bias = member.base.bias
    before = bias.data.float().cpu() if isinstance(bias, Tensor) else torch.zeros(member.out_features)
    after = _bias_in_effect(member, plan, read, before)
    if scale is None and after is before:
        return
    yield Affine(member.out_start, after - (before if scale is None else scale * before), scale)


def _joined(affines: list[Affine], dtype: torch.dtype) -> Iterator[Affine]:
    """Merge the changes of all members, since each would cost a call per step; outputs between them are scaled by 1."""
    if not affines:
        return
    start = affines[0].out_start
    width = affines[-1].out_start + affines[-1].shift.shape[0] - start
    shift, scale = torch.zeros(width), torch.ones(width)
    for affine in affines:
        outputs = slice(affine.out_start - start, affine.out_start - start + affine.shift.shape[0])
        shift[outputs] = affine.shift
        if affine.scale is not None:
            scale[outputs] = affine.scale
    scaled = any(affine.scale is not None for affine in affines)
    yield Affine(start, shift.to(dtype), scale.to(dtype) if scaled else None)


def _bias_in_effect(member: Member, plan: AdapterPlan, read: Read, base: Tensor) -> Tensor:
    """Return the bias in effect [out], float32; the base bias itself if the adapter has none."""
    bias = read(plan.biases[member.name]).float() if member.name in plan.biases else base
    lora = plan.modules.get(member.name)
    return bias if lora is None or lora.bias is None else bias + read(lora.bias).float() * lora.scaling


def _dense(member: Member, plan: AdapterPlan, read: Read, dtype: torch.dtype) -> Iterator[BaseChange]:
    """Yield weights that replace the base model's: of the whole module, or of the logits of trained tokens."""
    replaced = plan.replaced.get(member.name)
    if replaced is not None:
        stored = read(replaced.parameters["weight"]).to(dtype)
        weight = stored.T.contiguous() if replaced.module.kind is ModuleKind.CONV1D else stored
        bias = replaced.parameters.get("bias")
        yield Dense(member.out_start, weight, None if bias is None else read(bias).to(dtype))
    for tokens in plan.trained_tokens.values():
        if member.name in (module.name for module in tokens.modules):
            yield DenseOutputs(torch.tensor(tokens.token_ids) + member.out_start, read(tokens.rows).to(dtype))
