"""Copies between the host and a device that let launches proceed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(numbers: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy a list or an array to the device without waiting; later launches see the copy.

    A copy from pageable memory to a GPU would wait until the GPU is idle.
    """
    if device.type == "cuda":
        host = torch.as_tensor(numbers, dtype=dtype).pin_memory()  # a copy
    else:
        host = torch.tensor(numbers, dtype=dtype)
    return host.to(device, non_blocking=True)


class Readback:
    """Copies of tensors, made on the current stream after everything launched so far.

    Later launches proceed while the host waits.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._copies = [_copied(tensor) for tensor in tensors]
        self._there: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._there = torch.cuda.Event()
            self._there.record()

    def wait(self) -> list[Tensor]:
        """Wait for the copies and return them in the order of their tensors."""
        if self._there is not None:
            self._there.synchronize()
        return self._copies


def _copied(tensor: Tensor) -> Tensor:
    """Copy a tensor; from a GPU into page-locked memory, where the copy is asynchronous."""
    if tensor.device.type != "cuda":
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
