"""Changes that an adapter makes to a linear layer's base output before its low-rank product is added.

Each change works in place on the rows of one segment, so that a faulty adapter affects only its own rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor


class BaseChange(Protocol):
    """One change to some outputs of a fused module."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the change, in a fixed order."""
        ...

    def on(self, left: Iterator[Tensor]) -> Self:
        """Return the same change with its tensors replaced by the next ones of the iterator."""
        ...

    def apply(self, out: Tensor, x: Tensor, rows: slice) -> None:
        """Change these rows of `out` [rows, out_features], given the layer's input x [rows, in_features]."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """y · scale + shift, over the outputs from `out_start` on: DoRA's scale (Liu et al., 2024, arXiv:2402.09353,
    section 4), and biases."""

    out_start: int
    shift: Tensor  # [outputs]
    scale: Tensor | None = None  # [outputs]; None means 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.shift,) if self.scale is None else (self.shift, self.scale)

    def on(self, left: Iterator[Tensor]) -> "Affine":
        return Affine(self.out_start, next(left), None if self.scale is None else next(left))

    def apply(self, out: Tensor, x: Tensor, rows: slice) -> None:
        target = out[rows, self.out_start : self.out_start + self.shift.shape[0]]
        if self.scale is None:
            target.add_(self.shift)
        elif target.dtype == self.scale.dtype:
            torch.addcmul(self.shift, target, self.scale, out=target)
        else:
            target.copy_(torch.addcmul(self.shift, target, self.scale))


@dataclass(frozen=True, slots=True)
class Dense:
    """The adapter's own weights in place of the base model's, over the outputs from `out_start` on."""

    out_start: int
    weight: Tensor  # [outputs, in], of the model's dtype
    bias: Tensor | None = None  # [outputs]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def on(self, left: Iterator[Tensor]) -> "Dense":
        return Dense(self.out_start, next(left), None if self.bias is None else next(left))

    def apply(self, out: Tensor, x: Tensor, rows: slice) -> None:
        out[rows, self.out_start : self.out_start + self.weight.shape[0]] = F.linear(x[rows], self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class DenseOutputs:
    """The adapter's own weights for some outputs, in any position: the logits of trained tokens."""

    outputs: Tensor  # [outputs], int64
    weight: Tensor  # [outputs, in], of the model's dtype

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.outputs, self.weight)

    def on(self, left: Iterator[Tensor]) -> "DenseOutputs":
        return DenseOutputs(next(left), next(left))

    def apply(self, out: Tensor, x: Tensor, rows: slice) -> None:
        out[rows].index_copy_(1, self.outputs, F.linear(x[rows], self.weight))
