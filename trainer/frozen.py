"""Products with frozen weights that have no adapter: a router's, and those of linears that are no targets.

Their rows are computed as those of targets are, so that they do not depend on each other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from loragate.trainer.products import ROW_ALIGNMENT, aligned, multiply


class FrozenProduct(torch.autograd.Function):
    """x [rows, in] @ w [in, out], for any number of rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.w = w
        return _multiply(x, w)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _multiply(gradient, ctx.w.t()), None


def _multiply(x: Tensor, w: Tensor) -> Tensor:
    missing = -x.shape[0] % ROW_ALIGNMENT
    padded = aligned(F.pad(x, (0, 0, 0, missing)) if missing else x)
    return multiply(padded, w)[: x.shape[0]]


def frozen_linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x [..., in] @ w [in, out] + bias."""
    y: Tensor = FrozenProduct.apply(x.reshape(-1, x.shape[-1]), w)  # type: ignore[no-untyped-call]
    y = y.view(*x.shape[:-1], -1)
    return y if bias is None else y + bias


def matrix(module: nn.Module) -> Tensor:
    """Return the weight of an nn.Linear or Conv1D as [in, out]."""
    assert isinstance(module, nn.Linear | Conv1D)
    weight = module.weight.detach()
    return weight if isinstance(module, Conv1D) else weight.t()


class FrozenLinear(nn.Module):
    """Replaces an nn.Linear or Conv1D that no adapter targets."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.weight = base.weight
        self.bias = base.bias
        self._w = matrix(base)

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias
        assert bias is None or isinstance(bias, Tensor)
        return frozen_linear(x, self._w, bias)


class FrozenParameter(nn.Parameter):
    """Replaces a bare weight [out, in], such as a router's, that the model only passes to `F.linear`."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.linear and isinstance(args[1], cls):
                return _linear(*args, **kwargs or {})
            return func(*args, **kwargs or {})


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return frozen_linear(x, weight.detach().t(), bias)
