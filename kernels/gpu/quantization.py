"""Eight-bit numbers as kernels read and write them: int8, and e4m3 as its bits.

GPUs before sm_89 have no instruction for float8, and Triton rejects it there. The bits of an e4m3 number (Micikevicius
et al., 2022, "FP8 formats for deep learning", arXiv:2209.05433, table 1) are those of a float16 with fewer digits and
another bias, so shifts and a multiplication by a power of two convert between them without loss.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PLAIN, INT8, E4M3 = 0, 1, 2
FORMATS = {torch.int8: INT8, torch.float8_e4m3fn: E4M3}
"""The format by which a kernel treats a cache of this dtype; all other dtypes are plain numbers."""

_INT8 = tl.constexpr(INT8)
_E4M3 = tl.constexpr(E4M3)


def as_stored(numbers: Tensor) -> Tensor:
    """Return the same memory in a dtype that every GPU can read."""
    return numbers.view(torch.uint8) if numbers.dtype == torch.float8_e4m3fn else numbers


@triton.jit
def dequantized(stored, scale, FORMAT: tl.constexpr, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return stored numbers times their scale, as `dtype`."""
    if FORMAT == _E4M3:
        bits = stored.to(tl.uint16)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        numbers = half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
        numbers = tl.where((bits & 0x7F) == 0x7F, float("nan"), numbers)
    else:
        numbers = stored.to(tl.float32)
    return (numbers * scale).to(dtype)


@triton.jit
def scale_for(numbers, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the divisor that brings the largest of some float32 numbers to the end of the range; NaN if any of them
    is."""
    largest = 127.0 if FORMAT == _INT8 else 448.0
    scale = tl.div_rn(tl.max(tl.abs(numbers)), largest)
    return tl.where(tl.sum((numbers != numbers).to(tl.int32)) > 0, float("nan"), scale)


@triton.jit
def quantized(numbers, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Round float32 numbers within the range to stored ones, to nearest with ties to even."""
    if FORMAT == _INT8:
        numbers = tl.where(numbers != numbers, 0.0, numbers)  # the scale is NaN as well
        stored = ((numbers + 12582912.0) - 12582912.0).to(tl.int8)  # 1.5 · 2^23, beyond which there are no fractions
    else:
        bits = (tl.abs(numbers) * 7.52316384526264e-37).to(tl.uint32, bitcast=True)  # 2^-120, between the two biases
        bits = tl.minimum((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20, 0x7E)
        bits = tl.where(numbers != numbers, 0x7F, bits)
        sign = (numbers.to(tl.uint32, bitcast=True) >> 24) & 0x80
        stored = (bits | sign).to(tl.uint8)
    return stored
