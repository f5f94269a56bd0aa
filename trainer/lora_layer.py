"""Linear layers that add each run's adapter to its rows, with the gradients of the adapters' factors.

Siblings that get one input (q, k and v; gate and up) are one group: the first that is called computes the outputs of
all. The backward pass goes over the same segments: the derivative by the input through the frozen weights and the
adapters, and, piece by piece, the sums for A and B.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from loragate.trainer.adapter import GroupFactors
from loragate.trainer.frozen import matrix
from loragate.trainer.packing import Segment, Step
from loragate.trainer.products import add_outer, aligned, multiply


class StepContext:
    """The step that the model computes now, for the modules inside it."""

    def __init__(self, device: torch.device) -> None:
        self._step: Step | None = None
        self._segments: tuple[Segment, ...] = ()
        self.between_layers: Callable[[], None] = lambda: None
        """Called in the step's thread before each layer's forward and backward products."""
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        """Makes outputs differentiable where the input is not, as in the first layer."""

    @property
    def step(self) -> Step:
        assert self._step is not None, "no step is running"
        return self._step

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @contextmanager
    def running(self, step: Step, segments: tuple[Segment, ...]) -> Iterator[None]:
        """Let modules compute these segments: a step's, or those of some of its rows in the head."""
        before = self._step, self._segments
        self._step, self._segments = step, segments
        try:
            yield
        finally:
            self._step, self._segments = before


class _BaseLinear:
    """The frozen weights of one module, as x @ w [in, out] + bias."""

    def __init__(self, module: nn.Module) -> None:
        self._w = matrix(module)
        self._bias = module.bias.detach() if isinstance(module.bias, Tensor) else None

    def forward(self, x: Tensor) -> Tensor:
        y = multiply(x, self._w)
        return y if self._bias is None else y.add_(self._bias)

    def backward(self, gradient: Tensor) -> Tensor:
        return multiply(gradient, self._w.t())


class LoraGroup:
    """Sibling modules with one input."""

    def __init__(self, number: int, modules: Sequence[nn.Module], context: StepContext) -> None:
        self.number = number
        self.bases = [_BaseLinear(module) for module in modules]
        self.context = context
        self._x: Tensor | None = None  # kept alive, so that no other tensor can take its identity
        self._outputs: tuple[Tensor, ...] = ()
        self._taken = 0

    def output(self, x: Tensor, member: int) -> Tensor:
        """Compute x [1, rows, in] → [1, rows, out of the member]; a new x is computed for all members at once."""
        if self._x is not x:
            computed: Any = _GroupProduct.apply(x, self.context.anchor, self, self.context.segments)  # type: ignore[no-untyped-call]
            self._x, self._outputs, self._taken = x, computed, 0
        y = self._outputs[member]
        self._taken += 1
        if self._taken >= len(self.bases):
            self._x, self._outputs = None, ()
        return y

    def forward(self, x: Tensor, segments: Sequence[Segment]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs of all members, and for each adapter here, and each member, scaling · x @ Aᵀ."""
        outputs = [base.forward(x) for base in self.bases]
        sums = [y.float() for y in outputs]
        sizes = [segment.rows for segment in segments]
        xs, ys = x.float().split(sizes), [y.split(sizes) for y in sums]
        shrunk = []
        for index, segment in enumerate(segments):
            factors = segment.weights.get(self.number)
            if factors is None:
                continue
            h = multiply(xs[index], factors.a_t)
            for part in factors.members:
                scaled = h[:, part.ranks] * part.scaling
                multiply(scaled, part.b_t, ys[part.member][index])
                shrunk.append(scaled)
        return [y.to(x.dtype) for y in sums], shrunk

    def backward(
        self,
        x: Tensor,
        shrunk: Sequence[Tensor],
        gradients: Sequence[Tensor],
        segments: Sequence[Segment],
        *,
        needs_input: bool,
    ) -> Tensor | None:
        """Add to the segments' gradients, and return the derivative by x if it is needed."""
        dx = self._base_backward(gradients).float() if needs_input else None
        sizes = [segment.rows for segment in segments]
        xs, dys = x.float().split(sizes), [g.float().split(sizes) for g in gradients]
        dxs = None if dx is None else dx.split(sizes)
        remaining = iter(shrunk)
        for index, segment in enumerate(segments):
            factors = segment.weights.get(self.number)
            if factors is None:
                continue
            dy = [dys[part.member][index] for part in factors.members]
            dhs = [multiply(g, part.b).mul_(part.scaling) for g, part in zip(dy, factors.members, strict=True)]
            dh = dhs[0] if len(dhs) == 1 else torch.cat(dhs, dim=1)
            if dxs is not None:
                multiply(dh, factors.a, dxs[index])
            h = [next(remaining) for _ in factors.members]
            if segment.gradient is not None:
                _add_gradient(segment.gradient[self.number], segment.pieces, xs[index], h, dh, dy)
        return None if dx is None else dx.to(x.dtype)

    def _base_backward(self, gradients: Sequence[Tensor]) -> Tensor:
        dx = self.bases[0].backward(gradients[0])
        for base, gradient in zip(self.bases[1:], gradients[1:], strict=True):
            dx.add_(base.backward(gradient))
        return dx


def _add_gradient(
    sums: GroupFactors, pieces: Sequence[int], x: Tensor, h: Sequence[Tensor], dh: Tensor, dy: Sequence[Tensor]
) -> None:
    """Add a segment's pieces, of so many rows each, one by one."""
    for dh_piece, x_piece in zip(dh.split(pieces), x.split(pieces), strict=True):
        add_outer(sums.a, dh_piece, x_piece)
    for part, dys, hs in zip(sums.members, dy, h, strict=True):
        for dy_piece, h_piece in zip(dys.split(pieces), hs.split(pieces), strict=True):
            add_outer(part.b, dy_piece, h_piece)


class _GroupProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor, group: LoraGroup, segments: tuple[Segment, ...]
    ) -> tuple[Tensor, ...]:
        group.context.between_layers()
        rows = aligned(x.reshape(-1, x.shape[-1]))
        outputs, shrunk = group.forward(rows, segments)
        ctx.group, ctx.segments, ctx.shape = group, segments, x.shape
        ctx.save_for_backward(rows, *shrunk)
        return tuple(y.view(*x.shape[:-1], -1) for y in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.group.context.between_layers()
        x, *shrunk = ctx.saved_tensors
        dy = [aligned(g.reshape(-1, g.shape[-1])) for g in gradients]
        dx = ctx.group.backward(x, shrunk, dy, ctx.segments, needs_input=ctx.needs_input_grad[0])
        return None if dx is None else dx.view(ctx.shape), None, None, None


class LoraMember(nn.Module):
    """Replaces an nn.Linear or Conv1D. `weight` and `bias` stay readable for models that access them."""

    def __init__(self, group: LoraGroup, member: int, base: nn.Module) -> None:
        super().__init__()
        self.weight = base.weight
        self.bias = base.bias
        self._group = group
        self._member = member

    def forward(self, x: Tensor) -> Tensor:
        return self._group.output(x, self._member)
