"""The matrix product that all kernels use: float32 sums, and float32 factors at full precision."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot(a, b, total, WIDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return total + a @ b."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


def widen(dtype: torch.dtype) -> bool:
    """Return whether factors of this type must be converted to float32 first.

    Triton's interpreter would multiply the bits of a bfloat16.
    """
    return dtype == torch.bfloat16 and triton.knobs.runtime.interpret
