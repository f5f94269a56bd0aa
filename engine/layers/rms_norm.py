"""Replacements for the model's RMSNorms that compute in one pass.

Model families implement them differently, and class names say little. Each norm is therefore compared with every known
formula on numbers of many magnitudes. A matching formula replaces it; a norm without a match stays as it is.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from loragate.engine.layers.rowwise_module import twin
from loragate.kernels.rms_norm import RmsNorm

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")


class FusedNorm(nn.Module):
    """Replaces a norm of the model; its weight is the same parameter."""

    def __init__(self, weight: nn.Parameter, kind: RmsNorm) -> None:
        super().__init__()
        self.weight = weight
        self.kind = kind
        self._ahead: tuple[Tensor, Tensor] | None = None  # a sum, and its norm

    def quantize(self) -> None:
        """Let the norm's kernel quantize the result, which products in eight bits read."""
        self.kind = replace(self.kind, quantizes=True)

    def add(self, x: Tensor, added: Tensor) -> Tensor:
        """Return x + added. The next call with this very tensor returns its norm, computed in the same launch."""
        self._ahead = self.kind.of_sum(x, added, self.weight)
        return self._ahead[0]

    def forward(self, x: Tensor) -> Tensor:
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] is x else self.kind(x, self.weight)


@torch.inference_mode()
def fused(module: nn.Module) -> FusedNorm | None:
    """Return the same norm in one pass, or None if it is not a known RMSNorm."""
    if not is_norm(module) or getattr(module, "bias", None) is not None:
        return None
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    random = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-4, 3, 8)[:, None]  # at the small end, eps matters
    x = (sizes * torch.randn(8, weight.shape[0], generator=random)).to(weight)
    other = torch.randn(weight.shape, generator=random).to(weight)  # an adapter may have its own
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
    """Return whether the module's parameters are a weight for each feature, and possibly a bias."""
    parameters = dict(module.named_parameters())
    return parameters.keys() <= {"weight", "bias"} and "weight" in parameters and parameters["weight"].ndim == 1
