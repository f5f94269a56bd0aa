"""Kernels for GPUs, in Triton.

Importing the modules of this package requires triton. On a CPU they run in its interpreter (`TRITON_INTERPRET=1`),
which the tests use.
"""

import importlib.util
from functools import cache

import torch

DEPENDENT_LAUNCHES = 90
"""Minimum architecture that starts a launch before the previous one has ended, where the two ask for it."""


@cache
def available() -> bool:
    """Return whether triton is installed."""
    return importlib.util.find_spec("triton") is not None


def serves(device: torch.device) -> bool:
    """Return whether these kernels serve tensors on the device."""
    return device.type == "cuda" and available()


def launches_dependents(device: torch.device) -> bool:
    """Return whether the device can start a launch before the previous one has ended."""
    if device.type != "cuda":
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor >= DEPENDENT_LAUNCHES
