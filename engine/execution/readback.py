"""Copies of device tensors to the host."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
