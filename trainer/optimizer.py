"""AdamW, as torch.optim.AdamW computes it (Loshchilov and Hutter, 2019, arXiv:1711.05101)."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from loragate.trainer.errors import TrainingRejected

_NORM_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class AdamParams:
    """The numbers of one step. `grad_clip_norm` 0 does not clip."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


def check_adam(params: AdamParams) -> None:
    """Raise TrainingRejected naming the first number out of range."""
    for each in fields(AdamParams):
        value = getattr(params, each.name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TrainingRejected(f"adam_params.{each.name}: must be a finite number, not {value!r}")
        if value < 0:
            raise TrainingRejected(f"adam_params.{each.name}: must not be negative, got {value}")
    for name in ("beta1", "beta2"):
        if getattr(params, name) >= 1:
            raise TrainingRejected(f"adam_params.{name}: must be less than 1, got {getattr(params, name)}")
    if params.eps == 0:
        raise TrainingRejected("adam_params.eps: must be positive: without it, weights without a gradient become NaN")


def gradient_norm(gradient: Tensor) -> float:
    """Return the norm of a flat gradient, whose size is a multiple of 1,024.

    The order of the sum does not depend on the number of threads: rows are summed as a whole, and then one by one.
    """
    rows = torch.linalg.vector_norm(gradient.view(-1, _NORM_BLOCK), dim=1).tolist()
    return math.hypot(*rows)


def adamw_step(weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int, params: AdamParams) -> None:
    """Update flat weights and moments in place; `step` counts from 1. The gradient is not clipped here."""
    if params.weight_decay:
        weights.mul_(1 - params.learning_rate * params.weight_decay)
    mean.lerp_(gradient, 1 - params.beta1)
    square.mul_(params.beta2).addcmul_(gradient, gradient, value=1 - params.beta2)
    correction1 = 1 - params.beta1**step
    correction2 = 1 - params.beta2**step
    denominator = square.sqrt().div_(correction2**0.5).add_(params.eps)
    weights.addcdiv_(mean, denominator, value=-(params.learning_rate / correction1))
