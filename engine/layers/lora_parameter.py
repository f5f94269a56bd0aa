"""A bare weight, such as a router's, that adds each row's own adapter where the model multiplies by it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from loragate.engine.layers.forward_context import ForwardContext
from loragate.engine.layers.lora_linear import LoraGroup, Member
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.segmented_lora import LoraTable


class LoraParameter(nn.Parameter):
    """Replaces a weight [out, in] that the model only passes to `F.linear`."""

    group: LoraGroup

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and isinstance(args[1], cls):
            return _linear(*args, **kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs or {})


def _linear(x: Tensor, weight: LoraParameter, bias: Tensor | None = None) -> Tensor:
    y = weight.group.output(x, weight.group.members[0])
    return y if bias is None else y + bias


def adapt(module: nn.Module, name: str, path: str, context: ForwardContext) -> LoraGroup:
    """Replace the module's parameter by a `LoraParameter`."""
    weight = getattr(module, name).data
    out_features, in_features = weight.shape
    linear = PackedLinear(weight, None)
    member = Member(path, 0, out_features, module)
    table = LoraTable(in_features, (out_features,), context.lora)
    group = LoraGroup((member,), in_features, linear, context, table)
    parameter = LoraParameter(weight, requires_grad=False)
    parameter.group = group
    setattr(module, name, parameter)
    return group
