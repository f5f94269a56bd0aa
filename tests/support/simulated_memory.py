"""A simulated GPU for kernels' tests: its memory is apart from the host's, as on a machine that has one.

Triton's interpreter reads any tensor. A kernel on a GPU cannot read the host's memory, so a test that leaves a tensor
there passes in the interpreter and fails on a GPU. In this mode tensors belong to the device that they were made on or
sent to, and neither a launch nor a function of torch accepts tensors of both.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda")
"""A GPU, or a simulated one where there is none."""

_HOST = torch.device("cpu")
_MARK = "_on_simulated_gpu"
_ACCEPT_BOTH = (Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__)


class SimulatedMemory(TorchFunctionMode):
    """Holds the tensors of `DEVICE` in host memory, and marks them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return DEVICE if on_device(args[0]) else _HOST
        if func is Tensor.pin_memory:
            return args[0]
        asked = next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.device)), None)
        if func is Tensor.cpu or (func is Tensor.to and asked is not None and (asked == DEVICE) != on_device(args[0])):
            return _marked(args[0].clone().to(*_on_host(args[1:]), **_named_on_host(kwargs)), asked == DEVICE)
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        here = _device_of(func, tensors) if asked is None else asked == DEVICE
        return _marked(func(*_on_host(args), **_named_on_host(kwargs)), here)


def on_device(tensor: Tensor) -> bool:
    return getattr(tensor, _MARK, False)


def refusing_host_memory(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch of the interpreter, `GridExecutor.__call__`, that refuses tensors in host memory."""

    @wraps(launch)
    def checked(grid: Any, *args: Any, **kwargs: Any) -> Any:
        for name, each in (*zip(grid.arg_names, args, strict=False), *kwargs.items()):
            if isinstance(each, Tensor) and not on_device(each):
                raise ValueError(f"the argument {name} is in host memory, where kernels cannot read it")
        with torch._C.DisableTorchFunction():
            return launch(grid, *args, **kwargs)

    return checked


def _device_of(func: Callable[..., Any], tensors: list[Tensor]) -> bool:
    """Return whether a result is on the device. Raise RuntimeError as torch does for tensors of both memories."""
    found = {on_device(tensor) for tensor in tensors if tensor.ndim} or {on_device(tensor) for tensor in tensors}
    if len(found) > 1 and func not in _ACCEPT_BOTH:
        raise RuntimeError(f"{func.__name__} expects all tensors to be on the same device")
    return on_device(tensors[0]) if tensors and func in _ACCEPT_BOTH else True in found


def _marked(result: Any, device: bool) -> Any:
    for tensor in _tensors((result,)):
        setattr(tensor, _MARK, device)
    return result


def _tensors(values: tuple[Any, ...]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(tuple(value))


def _on_host(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_HOST if isinstance(value, torch.device) and value == DEVICE else value for value in values)


def _named_on_host(values: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(values, _on_host(tuple(values.values())), strict=True))
