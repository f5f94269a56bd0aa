"""Linear layers that add each row's own adapter, fused with siblings that the model gives the same input.

q, k and v (or gate and up) of one parent get the identical tensor object, so the first of them computes the outputs of
all, and the others take their slice. Adapters see the fused module too: one shrink for all targets of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from loragate.engine.layers.forward_context import ForwardContext
from loragate.engine.layers.fp8_linear import Fp8Linear
from loragate.engine.layers.quantization import BaseLinear, CalledLinears, dense_weight, is_models_own, is_quantized
from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.kernels.base_output import Affine
from loragate.kernels.lora_weights import LoraWeights
from loragate.kernels.memory_advice import page_out
from loragate.kernels.packed_linear import PackedLinear, in_blocks
from loragate.kernels.quantized_rows import attached
from loragate.kernels.segmented_lora import LoraTable
from loragate.kernels.segments import FixedSegments


@dataclass(frozen=True, slots=True)
class Member:
    """One module of a fused group, its columns in the group's output, and the module that it replaced."""

    name: str
    out_start: int
    out_features: int
    base: nn.Module


@dataclass(eq=False, slots=True)
class LoraGroup:
    """Base weights of sibling modules side by side, and the adapters resident for them."""

    members: tuple[Member, ...]
    in_features: int
    linear: BaseLinear
    context: ForwardContext
    adapters: LoraTable
    _x: Tensor | None = None  # kept alive, so that no other tensor can take its identity
    _y: Tensor | None = None
    _taken: int = 0

    def output(self, x: Tensor, member: Member) -> Tensor:
        """Compute x [1, rows, in] → [1, rows, member.out_features]; a new x is computed for all members at once."""
        if self._x is not x or self._y is None:
            self._x, self._y, self._taken = x, self._compute(x), 0
        y = self._y[..., member.out_start : member.out_start + member.out_features]
        self._taken += 1
        if self._taken >= len(self.members):
            self._x = self._y = None
        return y

    def put(self, slot: int, patch: LoraWeights) -> None:
        self.adapters.put(slot, patch)
        self.context.set_needs_calls(
            self, slot, needed=not all(isinstance(change, Affine) for change in patch.base_changes)
        )

    def clear(self, slot: int) -> None:
        self.adapters.clear(slot)
        self.context.set_needs_calls(self, slot, needed=False)

    def _compute(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        segments = self.context.batch.segments_for(rows.shape[0])
        adapted = bool(self.adapters.weights) or isinstance(segments, FixedSegments)
        finish = self.adapters.start(rows, segments) if adapted else None
        y = self._base(x, rows)
        if adapted:
            self.adapters.add(y, rows, segments, finish)
        return y.view(*x.shape[:-1], -1)

    def _base(self, x: Tensor, rows: Tensor) -> Tensor:
        """Compute the rows of x without adapters."""
        if self.context.batch_invariant:
            return in_blocks(self.linear, rows)
        if isinstance(self.linear, ScaledLinear) and (quantized := attached(x)) is not None:
            return self.linear.product(quantized, x.dtype)
        return self.linear(rows)


class LoraLinear(nn.Module):
    """Replaces an nn.Linear or Conv1D. `weight` and `bias` stay readable for models that access them."""

    def __init__(self, group: LoraGroup, member: Member) -> None:
        super().__init__()
        self.weight = member.base.weight
        self.bias = member.base.bias
        self.in_features = group.in_features
        self.out_features = member.out_features
        self._group = group
        self._member = member

    def forward(self, x: Tensor) -> Tensor:
        return self._group.output(x, self._member)


def weight_and_bias(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Return a linear module's weight as [out, in], however it is stored, and its bias."""
    if is_quantized(module):
        weight: Any = dense_weight(module)
    else:
        weight = module.weight.data.T if isinstance(module, Conv1D) else module.weight.data
    assert isinstance(weight, Tensor)
    return weight, _bias(module)


def _bias(module: nn.Module) -> Tensor | None:
    bias = None if module.bias is None else module.bias.data
    return bias if isinstance(bias, Tensor) else None


def linear_shape(module: nn.Module) -> tuple[int, int]:
    """Return (out, in) of a linear module."""
    if isinstance(module, Conv1D):
        return module.nf, module.nx
    assert isinstance(module, nn.Linear)
    return module.out_features, module.in_features


def build_group(names: Sequence[str], modules: Sequence[nn.Module], context: ForwardContext) -> LoraGroup:
    """Fuse sibling modules of one input size; a member without bias gets zeros if another one has a bias."""
    members, start = [], 0
    for name, module in zip(names, modules, strict=True):
        out_features, in_features = linear_shape(module)
        members.append(Member(name, start, out_features, module))
        start += out_features
    widths = tuple(member.out_features for member in members)
    table = LoraTable(in_features, widths, context.lora)
    return LoraGroup(tuple(members), in_features, _fused(modules), context, table)


def _fused(modules: Sequence[nn.Module]) -> BaseLinear:
    in_fp8 = [module for module in modules if isinstance(module, Fp8Linear)]
    if len(in_fp8) == len(modules):
        return _scaled(in_fp8)
    return CalledLinears(modules) if any(is_quantized(m) for m in modules) else _packed(modules)


def _packed(modules: Sequence[nn.Module]) -> PackedLinear:
    weights = [weight_and_bias(module)[0] for module in modules]
    fused = weights[0] if len(weights) == 1 else torch.cat(weights)
    linear = PackedLinear(fused, _fused_bias(modules))
    if linear.packed:
        for weight in weights:
            page_out(weight)
    else:
        _share(fused, modules)
    return linear


def _scaled(modules: Sequence[Fp8Linear]) -> ScaledLinear:
    weights = [module.weight.data for module in modules]
    fused = (
        weights[0] if len(weights) == 1 else torch.cat([w.view(torch.uint8) for w in weights]).view(weights[0].dtype)
    )
    _share(fused, modules)
    return ScaledLinear(fused, torch.cat([module.weight_scale for module in modules]), _fused_bias(modules))


def _fused_bias(modules: Sequence[nn.Module]) -> Tensor | None:
    biases = [_bias(module) for module in modules]
    like = next((bias for bias in biases if bias is not None), None)
    if like is None:
        return None
    return torch.cat(
        [like.new_zeros(linear_shape(m)[0]) if b is None else b for m, b in zip(modules, biases, strict=True)]
    )


def _share(fused: Tensor, modules: Sequence[nn.Module]) -> None:
    """Make the modules' weights views of the fused one, so that they do not take device memory a second time."""
    parts = fused.split([linear_shape(module)[0] for module in modules])
    for module, part in zip(modules, parts, strict=True):
        assert isinstance(module.weight, Tensor)
        module.weight.data = part.T if isinstance(module, Conv1D) else part


def is_linear(module: nn.Module) -> bool:
    """Return whether the module is a dense layer, quantized or not, that an adapter may target."""
    return isinstance(module, nn.Linear | Conv1D) and not is_models_own(module)
