"""RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467) in one pass, where torch takes six calls."""

from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.kernels import cpu, gpu

if cpu.available():
    from loragate.kernels.cpu import rms_norm as cpu_norm
if gpu.available():
    from loragate.kernels.gpu import rms_norm as gpu_norm


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """The RMSNorm of a model family."""

    eps: float  # added to the mean square
    shift: float = 0.0  # added to the weight; 1 for Gemma
    rounds_first: bool = False  # round to the model's dtype before multiplying by the weight (Llama) rather than after
    quantizes: bool = False  # on a GPU, attach the result's quantized rows to it

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """Normalize x [..., features] with weight [features]; the result has the shape and dtype of x."""
        if gpu.serves(x.device):
            return gpu_norm.rms_norm(x, weight, *self._options)
        if cpu.available() and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32:
            return cpu_norm.rms_norm(x, weight, self.eps, self.shift)
        return self.reference(x, weight)

    def of_sum(self, x: Tensor, added: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + added and its norm, as they are one after the other; on a GPU in one launch."""
        if gpu.serves(x.device) and (x.shape, x.dtype) == (added.shape, added.dtype):
            return gpu_norm.add_rms_norm(x, added, weight, *self._options)
        total = x + added
        return total, self(total, weight)

    @property
    def _options(self) -> tuple[float, float, bool, bool]:
        return self.eps, self.shift, self.rounds_first, self.quantizes

    def reference(self, x: Tensor, weight: Tensor) -> Tensor:
        """Compute the same in torch."""
        numbers = x.float()
        normed = numbers * torch.rsqrt(numbers.square().mean(-1, keepdim=True) + self.eps)
        if self.rounds_first:
            return normed.to(x.dtype) * (weight + self.shift)
        return (normed * (weight.float() + self.shift)).to(x.dtype)
