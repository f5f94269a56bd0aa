"""The model's RMSNorms, computed in one pass.

Families write them differently, and what a class is called says little. So each norm is tried on numbers of many sizes
beside every way that is known; one that agrees takes its place, and a norm that none agrees with stays as it is.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from loragate.engine.layers.rowwise_module import twin
from loragate.kernels.rms_norm import RmsNorm

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")


class FusedNorm(nn.Module):
    """Stands where a norm of the model stood; its weight is the same parameter."""

    def __init__(self, weight: nn.Parameter, kind: RmsNorm) -> None:
        super().__init__()
        self.weight = weight
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return self.kind(x, self.weight)


@torch.inference_mode()
def fused(module: nn.Module) -> FusedNorm | None:
    """The same norm in one pass; None if it is no RMSNorm, or none that is known."""
    if not is_norm(module) or getattr(module, "bias", None) is not None:
        return None
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    random = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-4, 3, 8)[:, None]  # at the small end, eps matters
    x = (sizes * torch.randn(8, weight.shape[0], generator=random)).to(weight)
    other = torch.randn(weight.shape, generator=random).to(weight)  # an adapter may bring its own
    expected = twin(module, weight=other)(x)
    for kind in _kinds(module):
        if torch.equal(kind.reference(x, other), expected):
            return FusedNorm(weight, kind)
    return None


def _kinds(module: nn.Module) -> Iterator[RmsNorm]:
    for name in _EPS_NAMES:
        eps = getattr(module, name, None)
        if isinstance(eps, float):
            for shift in (0.0, 1.0):
                for rounds_first in (True, False):
                    yield RmsNorm(eps, shift, rounds_first)


def is_norm(module: nn.Module) -> bool:
    """Whether its parameters are a weight for each feature, and perhaps a bias."""
    parameters = dict(module.named_parameters())
    return parameters.keys() <= {"weight", "bias"} and "weight" in parameters and parameters["weight"].ndim == 1
