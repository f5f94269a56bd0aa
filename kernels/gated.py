"""Gated activations (Shazeer, 2020, arXiv:2002.05202): one half of an MLP's inner features gates the other."""

from enum import Enum

import torch.nn.functional as F
from torch import Tensor


class Activation(Enum):
    """The activation of the gate. The kernels identify it by its value."""

    SILU = 0
    GELU = 1
    GELU_TANH = 2  # the tanh approximation, as in Gemma

    def apply(self, gate: Tensor) -> Tensor:
        """Apply the activation to gate [...]."""
        if self is Activation.SILU:
            return F.silu(gate)
        return F.gelu(gate, approximate="tanh" if self is Activation.GELU_TANH else "none")

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """Compute what the kernel computes, in torch: gate and up [..., features] → the same shape."""
        return self.apply(gate) * up
