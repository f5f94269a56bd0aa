"""RMSNorm of float32 rows, one row at a time on each thread."""

import ctypes
from typing import Any

import numpy as np
import torch
from numba import carray
from torch import Tensor

from loragate.kernels.cpu.parallel import ParallelLoop, compiled, floats_at, int64_array, thread, threads


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float) -> Tensor:
    """Normalize x [..., features] with weight [features], both float32; `shift` is added to the weight."""
    x = x.contiguous()
    out = torch.empty_like(x)
    features = x.shape[-1]
    factors = (ctypes.c_float * 2)(eps, shift)
    places = x.data_ptr(), weight.data_ptr(), out.data_ptr(), ctypes.addressof(factors)
    norm_rows(int64_array(*places, x.numel() // features, features))
    return out


@ParallelLoop
def norm_rows(pointer: Any) -> None:
    x_at, weight_at, out_at, factors_at, rows, features = carray(pointer, 6)
    x = carray(floats_at(x_at), (rows, features))
    out = carray(floats_at(out_at), (rows, features))
    weight = carray(floats_at(weight_at), features)
    factors = carray(floats_at(factors_at), 2)
    for row in range(thread(), rows, threads()):
        _norm(out[row], x[row], weight, factors[0], factors[1])


@compiled
def _norm(out: Any, x: Any, weight: Any, eps: float, shift: float) -> None:
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    scale = np.float32(1) / np.sqrt(total / np.float32(len(x)) + eps)
    for i in range(len(x)):
        out[i] = x[i] * scale * (weight[i] + shift)
