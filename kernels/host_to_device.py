"""Numbers of the host on their way to a device."""

from typing import Any

import torch
from torch import Tensor


def sent(numbers: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of a list or an array on the device, there before whatever is launched next: nobody waits for it.

    Out of memory that may be paged, a copy to a GPU would wait until the GPU has nothing else to do.
    """
    host = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda":
        host = host.pin_memory()  # torch.tensor refuses to, of an array
    return host.to(device, non_blocking=True)
