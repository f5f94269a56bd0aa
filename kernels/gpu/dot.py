"""The matrix product of all kernels: float32 sums, and float32 factors as exact as they are."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot(a, b, total, WIDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """total + a @ b."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


def widen(dtype: torch.dtype) -> bool:
    """Whether factors of this type are to be made float32 first: Triton's interpreter multiplies bfloat16's bits."""
    return dtype == torch.bfloat16 and triton.knobs.runtime.interpret
