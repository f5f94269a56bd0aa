"""The decoder layers of the traced pass whose sums are known, and the norms that read what they return."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.engine.layers import residual
from loragate.engine.layers.residual import PreNorm
from loragate.engine.layers.rms_norm import is_norm


@dataclass(frozen=True, slots=True)
class ResidualLayer:
    """A decoder layer's parts, and the name of the norm that gets what the layer returns, unchanged."""

    parts: PreNorm
    following: str | None = None


@dataclass(slots=True)
class ResidualLayers:
    """Finds such layers while a probe goes through the model. `is_attention` knows the attention modules called so
    far."""

    is_attention: Callable[[nn.Module], bool]
    calls: dict[str, list[ResidualLayer | None]] = field(default_factory=dict)
    _returned: tuple[str, Tensor, Tensor] | None = None  # by the last layer: its name, the tensor, and its numbers

    @property
    def found(self) -> dict[str, ResidualLayer]:
        """By name, the layers that were called once."""
        return {name: each[0] for name, each in self.calls.items() if len(each) == 1 and each[0] is not None}

    @contextmanager
    def recording(self, model: PreTrainedModel) -> Iterator[None]:
        hooks = []
        for name, module in model.named_modules():
            if is_norm(module):
                hooks.append(module.register_forward_pre_hook(self._norm(name)))
            elif sum(map(is_norm, module.children())) == 2:
                hooks.append(module.register_forward_hook(self._layer(name), with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _layer(self, name: str) -> Any:
        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> None:
            inside = [child for child in module.children() if self.is_attention(child)]
            parts = residual.recognize(module, inside[0], args[0], kwargs) if len(args) == len(inside) == 1 else None
            self.calls.setdefault(name, []).append(None if parts is None else ResidualLayer(parts))
            self._returned = (name, y, y.clone()) if isinstance(y, Tensor) else None

        return record

    def _norm(self, name: str) -> Any:
        def record(_: nn.Module, args: tuple[Any, ...]) -> None:
            if self._returned is None:
                return
            (layer, returned, numbers), self._returned = self._returned, None
            known = self.calls[layer][-1]
            if known is not None and args and args[0] is returned and torch.equal(returned, numbers):
                self.calls[layer][-1] = ResidualLayer(known.parts, name)

        return record
