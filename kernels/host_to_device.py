"""Copying of numbers from the host to a device."""

from typing import Any

import torch
from torch import Tensor


def to_device(numbers: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy a list or an array to the device without waiting; later launches see the copy.

    A copy from pageable memory to a GPU would wait until the GPU is idle.
    """
    host = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda":
        host = host.pin_memory()  # torch.tensor cannot pin memory when it is given an array
    return host.to(device, non_blocking=True)
