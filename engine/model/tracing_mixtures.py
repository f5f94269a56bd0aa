"""The parts of a mixture that the traced pass finds: its experts, and the bare weights of its routers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.integrations.moe import ExpertsInterface

_TRACE = "loragate_trace"


def check_experts(model: PreTrainedModel) -> None:
    """Raise RuntimeError for experts in fp8, which go through an interface of their own."""
    if any(type(module).__name__ == "FP8Experts" for module in model.modules()):
        raise RuntimeError("its experts are quantized to fp8; use the weights in bfloat16")


@contextmanager
def recording_experts(model: PreTrainedModel, found: dict[nn.Module, bool], rows: int) -> Iterator[None]:
    """Replace the experts that go through transformers' interface; record them, and whether they get all rows."""

    def record(module: nn.Module, hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
        found[module] = found.get(module, True) and hidden_states.shape[0] == rows
        return torch.zeros_like(hidden_states)

    ExpertsInterface.register(_TRACE, record)
    before = model.config.get_text_config()._experts_implementation
    model.set_experts_implementation(_TRACE)
    try:
        yield
    finally:
        model.set_experts_implementation(before)


class BareWeights(TorchFunctionMode):
    """Finds, among parameters [out, in] outside linear layers, those that the model only multiplies all rows by."""

    def __init__(self, candidates: Sequence[tuple[str, nn.Parameter]], rows: int) -> None:
        super().__init__()
        self._names = {id(parameter): name for name, parameter in candidates}
        self._rows = rows
        self._products: dict[str, int] = {}
        self._other: set[str] = set()

    @property
    def found(self) -> list[str]:
        """Parameters that were passed to `F.linear` once, with one input for each row, and to nothing else."""
        return [name for name, count in self._products.items() if count == 1 and name not in self._other]

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        for place, value in enumerate((*args, *kwargs.values())):
            name = self._names.get(id(value))
            if name is None:
                continue
            x = args[0] if args else None
            if func is F.linear and place == 1 and isinstance(x, Tensor) and x.numel() == self._rows * x.shape[-1]:
                self._products[name] = self._products.get(name, 0) + 1
            else:
                self._other.add(name)
        return func(*args, **kwargs)
