"""Numbers of the device on their way to the host."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Readback:
    """Copies of some tensors, made on the current stream once all that was launched before is done. What is launched
    afterwards goes on while the host waits."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._copies = [_copied(tensor) for tensor in tensors]
        self._there: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._there = torch.cuda.Event()
            self._there.record()

    def wait(self) -> list[Tensor]:
        """Until all of that is done: the copies, in the order in which their tensors were given."""
        if self._there is not None:
            self._there.synchronize()
        return self._copies


def _copied(tensor: Tensor) -> Tensor:
    """Out of a GPU into memory that is never paged: only there is a copy made while the host goes on."""
    if tensor.device.type != "cuda":
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
