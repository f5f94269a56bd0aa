"""Embeddings and norms of the base model whose rows may use an adapter's parameters.

The module stays in place and is called as usual. While an adapter that changes it is on the device, a hook corrects the
rows of that adapter afterwards; otherwise none of our code runs.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from loragate.engine.layers.forward_context import ForwardContext
from loragate.engine.layers.patch import Patch
from loragate.kernels.quantized_rows import detach
from loragate.kernels.segments import FixedSegments

RowFunction = Callable[[Tensor, Tensor], Tensor]
"""Maps some rows of a module's input and output to the corrected output."""


class RowPatch(Patch, Protocol):
    """One adapter's change to such a module."""

    def bind(self, module: nn.Module) -> RowFunction: ...


@dataclass(eq=False, slots=True)
class SlotModule:
    """A module that computes each row independently; `rows_dim` is the dimension of its input that counts rows."""

    module: nn.Module
    rows_dim: int
    context: ForwardContext
    _functions: dict[int, RowFunction] = field(default_factory=dict)
    _hook: RemovableHandle | None = None

    def put(self, slot: int, patch: RowPatch) -> None:
        self._functions[slot] = patch.bind(self.module)
        self.context.set_needs_calls(self, slot, needed=True)
        if self._hook is None:
            self._hook = self.module.register_forward_hook(self._correct)

    def clear(self, slot: int) -> None:
        self._functions.pop(slot, None)
        self.context.set_needs_calls(self, slot, needed=False)
        if not self._functions and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _correct(self, _module: nn.Module, args: tuple[Any, ...], y: Tensor) -> None:
        x = args[0]
        segments = self.context.batch.segments_for(x.shape[self.rows_dim])
        for segment in () if isinstance(segments, FixedSegments) else segments:  # fixed segments have no such adapters
            function = self._functions.get(segment.slot)
            if function is not None:
                rows = self.rows_dim, segment.start, segment.stop - segment.start
                detach(y)
                target = y.narrow(*rows)
                target.copy_(function(x.narrow(*rows), target))


def twin(module: nn.Module, **parameters: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the forward of the same module with other parameters; all else that it does, such as scaling, is
    unchanged."""
    other = copy.copy(module)
    other._parameters = {**module._parameters, **parameters}  # type: ignore[dict-item]
    if isinstance(other, nn.Embedding):
        other.padding_idx = None  # it could lie beyond the vocabulary, and only affects gradients
    forward: Callable[[Tensor], Tensor] = other.forward
    return forward
