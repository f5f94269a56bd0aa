"""RMSNorm of float32 rows, a row at a time on each thread."""

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import carray
from torch import Tensor

from loragate.kernels.cpu.parallel import ParallelLoop, compiled, floats_at, thread, threads, whole_numbers

if TYPE_CHECKING:
    from loragate.kernels.rms_norm import RmsNorm


def rms_norm(x: Tensor, weight: Tensor, kind: "RmsNorm") -> Tensor:
    """x [..., features], weight [features], float32 → like x."""
    x = x.contiguous()
    out = torch.empty_like(x)
    features = x.shape[-1]
    factors = (ctypes.c_float * 2)(kind.eps, kind.shift)
    places = x.data_ptr(), weight.data_ptr(), out.data_ptr(), ctypes.addressof(factors)
    norm_rows(whole_numbers(*places, x.numel() // features, features))
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
