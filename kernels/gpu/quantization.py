"""Eight-bit numbers as kernels read and write them: int8, and e4m3, natively or by its bits.

GPUs before sm_89 have no instruction for float8, and Triton rejects it there. The bits of an e4m3 number (Micikevicius
et al., 2022, "FP8 formats for deep learning", arXiv:2209.05433, table 1) are those of a float16 with fewer digits and
another bias, so shifts and a multiplication by a power of two convert between them without loss.

All eight-bit numbers are exact in the 16-bit types that tensor cores multiply. Their scales are therefore left out of
the products of matrices: a key's is a factor of its score, and a value's of its weight. A scale is NaN if a number is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PLAIN, INT8, E4M3, E4M3_BITS = 0, 1, 2, 3
"""The formats by which a kernel treats a cache; numbers of more than eight bits are plain."""

_INT8 = tl.constexpr(INT8)
_E4M3 = tl.constexpr(E4M3)
_PLAIN = tl.constexpr(PLAIN)
_E4M3_BITS = tl.constexpr(E4M3_BITS)


def format_of(storage: torch.dtype, device: torch.device) -> int:
    """Return the format of a cache of this dtype on the device."""
    if storage == torch.float8_e4m3fn:
        return E4M3 if has_float8(device) else E4M3_BITS
    return INT8 if storage == torch.int8 else PLAIN


def has_float8(device: torch.device) -> bool:
    """Return whether kernels can convert float8 on the device; Triton's interpreter can."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(device) >= (8, 9)


def as_stored(numbers: Tensor) -> Tensor:
    """Return the same memory in a dtype that every GPU can read."""
    return numbers.view(torch.int8) if numbers.dtype == torch.float8_e4m3fn else numbers


@triton.constexpr_function
def value_dtype(dtype, format_):  # type: ignore[no-untyped-def]
    """Return the type of weights and values in their product. float16 would lose small weights times small scales."""
    return tl.bfloat16 if format_ != PLAIN and dtype == tl.float16 else dtype


@triton.jit
def unscaled(stored, FORMAT: tl.constexpr, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return eight-bit numbers without their scales, as `dtype`; `scaled` is their counterpart."""
    if FORMAT == _E4M3:
        numbers = stored.to(tl.float8e4nv, bitcast=True).to(dtype)
    elif FORMAT == _E4M3_BITS:
        numbers = ((stored.to(tl.int16) << 7) & -16512).to(tl.float16, bitcast=True).to(dtype)  # sign, 0, other bits
    else:
        numbers = stored.to(tl.float32).to(dtype)  # the interpreter would take an integer for a bfloat16's bits
    return numbers


@triton.jit
def scaled(products, factor, scales, place, there, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply products [rows, places] by a factor, and by each place's scale where numbers are `unscaled`."""
    if FORMAT == _PLAIN:
        return products * factor
    if FORMAT == _E4M3_BITS:
        factor = factor * 256.0  # between the two biases
    return products * (factor * tl.load(scales + place, mask=there, other=0.0))[None, :]


@triton.jit
def scale_for(numbers, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the divisor that brings the largest of float32 numbers [..., n] to the end of the range, [..., 1]; NaN if
    any of them is."""
    largest = 127.0 if FORMAT == _INT8 else 448.0
    scale = tl.div_rn(tl.max(tl.abs(numbers), axis=-1, keep_dims=True), largest)
    return tl.where(tl.sum((numbers != numbers).to(tl.int32), axis=-1, keep_dims=True) > 0, float("nan"), scale)


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
        stored = (bits | sign).to(tl.int8)
    return stored


@triton.jit
def store_quantized(numbers, target, scales, rows_there, there, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store numbers [..., n] at `target` [..., n], where `there`, and the scales of rows at `scales` [..., 1]."""
    numbers = numbers.to(tl.float32)
    scale = scale_for(numbers, FORMAT)
    tl.store(scales, scale, mask=rows_there)
    scaled = tl.div_rn(numbers, tl.where(scale > 0, scale, 1.0))
    tl.store(target, quantized(scaled, FORMAT), mask=there)
