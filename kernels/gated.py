"""Gated activations (Shazeer, 2020, arXiv:2002.05202): one half of an MLP's inner features switches the other."""

from enum import Enum

import torch.nn.functional as F
from torch import Tensor


class Activation(Enum):
    """What the gate goes through. The values are what the kernels know them by."""

    SILU = 0
    GELU = 1
    GELU_TANH = 2  # the approximation by tanh, as Gemma's

    def of(self, gate: Tensor) -> Tensor:
        """gate [...] → like gate."""
        if self is Activation.SILU:
            return F.silu(gate)
        return F.gelu(gate, approximate="tanh" if self is Activation.GELU_TANH else "none")

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """What the kernel computes, in torch: gate and up [..., features] → like them."""
        return self.of(gate) * up
