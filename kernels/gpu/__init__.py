"""Kernels for GPUs, in Triton. Importing the modules of this package needs triton; on a CPU they run in its
interpreter (`TRITON_INTERPRET=1`), for tests."""

import importlib.util
from functools import cache

import torch


@cache
def available() -> bool:
    """Whether triton is installed."""
    return importlib.util.find_spec("triton") is not None


def serves(device: torch.device) -> bool:
    """Whether these kernels are the way to compute on the device."""
    return device.type == "cuda" and available()
