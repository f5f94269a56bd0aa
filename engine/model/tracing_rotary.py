"""The attention layers of the traced pass that pass what they rotated straight on to attention."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from loragate.engine.layers import rotary


class RotatedStates(TorchFunctionMode):
    """Watches the rotated queries and keys of a layer from their rotation until its attention."""

    def __init__(self) -> None:
        super().__init__()
        self._watched: tuple[nn.Module, Tensor, Tensor] | None = None

    @contextmanager
    def recording(self, model: PreTrainedModel) -> Iterator[None]:
        layers = {module: function for module in model.modules() if (function := _rotation(module)) is not None}
        for layer, function in layers.items():
            rotary.bind(layer, self._watching(layer, function))
        try:
            with self:
                yield
        finally:
            for layer in layers:
                del layer.forward

    def passes_on(self, layer: nn.Module, query: Tensor, key: Tensor) -> bool:
        """Return whether the layer, which calls its attention with these, rotated them last, and used neither since."""
        watched, self._watched = self._watched, None
        return watched is not None and watched[0] is layer and watched[1] is query and watched[2] is key

    def _watching(self, layer: nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
        def rotate(*args: Any, **kwargs: Any) -> Any:
            query, key = function(*args, **kwargs)
            self._watched = (layer, query, key) if len(args) == 4 and not kwargs else None
            return query, key

        return rotate

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._watched is not None and any(self._is_watched(value) for value in (*args, *kwargs.values())):
            self._watched = None
        return func(*args, **kwargs)

    def _is_watched(self, value: Any) -> bool:
        assert self._watched is not None
        values = value if isinstance(value, list | tuple) else (value,)
        return any(each is state for each in values for state in self._watched[1:])


def _rotation(module: nn.Module) -> Callable[..., Any] | None:
    return None if "forward" in vars(module) else rotary.rotation_of(module)
