"""Embeddings and norms of the base model whose rows may want another adapter's parameters.

The module is left in its place and is called as ever. While an adapter that changes it is on the device, a hook
puts the rows of that adapter right afterwards; the rest of the time nothing of ours runs.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from loragate.engine.layers.forward_context import CurrentStep
from loragate.engine.layers.patch import Patch
from loragate.kernels.segments import FixedSegments

RowFunction = Callable[[Tensor, Tensor], Tensor]
"""From some rows of a module's input and output to what the output is to be."""


class RowPatch(Patch, Protocol):
    """What one adapter changes in such a module."""

    def bind(self, module: nn.Module) -> RowFunction: ...


@dataclass(eq=False, slots=True)
class SlotModule:
    """A module that computes each row by itself; `rows_dim` is the dimension of its input that counts rows."""

    module: nn.Module
    rows_dim: int
    step: CurrentStep
    _functions: dict[int, RowFunction] = field(default_factory=dict)
    _hook: RemovableHandle | None = None

    def put(self, slot: int, patch: RowPatch) -> None:
        self._functions[slot] = patch.bind(self.module)
        self.step.calls(self, slot, needed=True)
        if self._hook is None:
            self._hook = self.module.register_forward_hook(self._correct)

    def clear(self, slot: int) -> None:
        self._functions.pop(slot, None)
        self.step.calls(self, slot, needed=False)
        if not self._functions and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _correct(self, _module: nn.Module, args: tuple[Any, ...], y: Tensor) -> None:
        x = args[0]
        segments = self.step.batch.segments_for(x.shape[self.rows_dim])
        for segment in () if isinstance(segments, FixedSegments) else segments:  # which have no such adapters
            function = self._functions.get(segment.slot)
            if function is not None:
                rows = self.rows_dim, segment.start, segment.stop - segment.start
                target = y.narrow(*rows)
                target.copy_(function(x.narrow(*rows), target))


def twin(module: nn.Module, **parameters: Tensor) -> Callable[[Tensor], Tensor]:
    """The forward of the same module over other parameters: whatever else it does, such as scale, it does alike."""
    other = copy.copy(module)
    other._parameters = {**module._parameters, **parameters}  # type: ignore[dict-item]
    if isinstance(other, nn.Embedding):
        other.padding_idx = None  # which must not lie beyond the vocabulary, and only matters to gradients
    forward: Callable[[Tensor], Tensor] = other.forward
    return forward
