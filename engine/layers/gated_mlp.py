"""Replacements for the model's gated MLPs that compute activation and product in one pass on a GPU.

The name of an MLP does not define its computation. Each one is therefore tested on a few numbers, and replaced only if
it computes `down(activation(gate(x)) * up(x))` to the last bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loragate.engine.layers.lora_linear import is_linear, linear_shape
from loragate.kernels import gpu
from loragate.kernels.gated import Activation

if gpu.available():
    from loragate.kernels.gpu import gated as kernel


@dataclass(frozen=True, slots=True)
class Gated:
    """The names of an MLP's parts."""

    gate: str
    up: str
    down: str
    activation: Activation


class GatedMlp(nn.Module):
    """Replaces an MLP of the model, with the same parts under the same names.

    If it `quantizes`, the last part gets its input's quantized rows from the kernel that makes the input.
    """

    def __init__(self, parts: Mapping[str, nn.Module], how: Gated, *, quantizes: bool = False) -> None:
        super().__init__()
        self._quantizes = quantizes
        for name, part in parts.items():
            self.add_module(name, part)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        parts, how = self._modules, self.how
        gate, up = parts[how.gate](x), parts[how.up](x)  # type: ignore[misc]
        y: Tensor = parts[how.down](kernel.gated(gate, up, how.activation, self._quantizes))  # type: ignore[misc]
        return y


@torch.inference_mode()
def recognize(mlp: nn.Module, siblings: Sequence[str], device: torch.device, dtype: torch.dtype) -> Gated | None:
    """Return how the module is a gated MLP, or None; `siblings` are those of its linears that share their input."""
    linears = {name: child for name, child in mlp.named_children() if is_linear(child)}
    others = linears.keys() - set(siblings)
    if len(siblings) != 2 or len(others) != 1 or len(linears) != 3:
        return None
    random = torch.Generator().manual_seed(0)
    x = 4 * torch.randn(1, 3, linear_shape(linears[siblings[0]])[1], generator=random).to(device, dtype)
    expected = mlp(x)
    for how in _ways(siblings, others.pop()):
        gate, up, down = (linears[name] for name in (how.gate, how.up, how.down))
        if torch.equal(down(how.activation.gated(gate(x), up(x))), expected):
            return how
    return None


def _ways(siblings: Sequence[str], down: str) -> Iterator[Gated]:
    first, second = siblings
    for gate, up in ((first, second), (second, first)):
        for activation in Activation:
            yield Gated(gate, up, down, activation)
