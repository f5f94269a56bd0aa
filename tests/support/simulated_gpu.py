"""A simulated GPU: tensors are in host memory, and torch's CUDA functions only check their arguments.

With it, the engine runs the code that it runs only on a GPU, and errors before the hardware is reached are raised."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.utils._device import _device_constructors

from loragate.engine.execution.cuda_graphs import CudaGraphs
from loragate.engine.execution.step_graphs import Launches
from loragate.engine.model.base_model import BaseModel
from loragate.engine.runtime import copy_stream
from loragate.engine.startup import build as assembly
from loragate.engine.startup import recorded_steps

GPU = torch.device("cuda")
MEMORY = 1 << 33  # bytes
_MAKING = ("tensor", "empty", "zeros", "ones", "full", "arange")


class Stream:
    made = 0
    current: "Stream"

    def __init__(self, device: torch.device | None = None) -> None:
        Stream.made += 1

    def wait_stream(self, other: "Stream") -> None: ...

    def wait_event(self, event: "Event") -> None: ...

    def make_current(self) -> None:
        Stream.current = self


class Event:
    def __init__(self, *, blocking: bool = False) -> None:
        self._recorded = False

    def record(self, stream: Stream | None = None) -> None:
        self._recorded = True

    def synchronize(self) -> None:
        assert self._recorded, "the event was never recorded"


class Graph:
    def replay(self) -> None: ...


class Graphs(CudaGraphs):
    """Graphs whose replay runs the recorded launches again, and which hold neither these nor their memory."""

    def record(self, launches: Launches) -> Launches:
        super().record(launches)
        recorded = ref(launches)

        def replay() -> None:
            again = recorded()
            assert again is not None, "the memory that the graph reads was freed"
            again()

        return replay


def _here(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for tensors in host memory, regardless of the requested device.

    It still rejects what torch rejects.
    """

    @wraps(function)
    def call(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        if pin_memory and not isinstance(args[0], list | tuple | int | torch.Size):
            function(*args, pin_memory=True, **kwargs)
            raise AssertionError("torch would have rejected this")
        return function(*map(_here, args), **{name: _here(value) for name, value in kwargs.items()})

    return call


def _recording(graph: Graph, pool: object, stream: Stream, capture_error_mode: str) -> AbstractContextManager[None]:
    assert capture_error_mode == "thread_local"
    return nullcontext()


def install(patch: pytest.MonkeyPatch) -> None:
    """Make models that are loaded from now on report a GPU as their device."""
    _device_constructors()  # caches the constructors on its first call
    for name in _MAKING:
        patch.setattr(torch, name, _on_host(getattr(torch, name)))
    patch.setattr(Tensor, "to", _on_host(Tensor.to))
    patch.setattr(Tensor, "pin_memory", Tensor.clone)
    patch.setattr(Stream, "current", Stream(), raising=False)
    stand_ins: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": _recording,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda device=None: Stream.current,
        "set_stream": Stream.make_current,
        "graph_pool_handle": lambda: (0, 1),
        "synchronize": lambda device=None: None,
        "mem_get_info": lambda device=None: (MEMORY // 2, MEMORY),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 1 << 20,
        "reset_peak_memory_stats": lambda device=None: None,
    }
    for name, stand_in in stand_ins.items():
        patch.setattr(torch.cuda, name, stand_in)
    prepare = assembly.prepare

    def prepared(model: Any, **options: Any) -> BaseModel:
        base = prepare(model, **options)
        object.__setattr__(base, "device", GPU)
        return base

    patch.setattr(assembly, "prepare", prepared)
    patch.setattr(recorded_steps, "CudaGraphs", Graphs)
    patch.setattr("loragate.kernels.gpu.serves", lambda device: False)  # torch computes
    copy_stream._beside_steps.cache_clear()
