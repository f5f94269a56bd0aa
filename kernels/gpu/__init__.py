"""Kernels for GPUs, in Triton.

Importing the modules of this package requires triton. On a CPU they run in its interpreter (`TRITON_INTERPRET=1`),
which the tests use.
"""

import importlib.util
from functools import cache

import torch


@cache
def available() -> bool:
    """Return whether triton is installed."""
    return importlib.util.find_spec("triton") is not None


def serves(device: torch.device) -> bool:
    """Return whether these kernels serve tensors on the device."""
    return device.type == "cuda" and available()
