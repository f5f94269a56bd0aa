"""Quantization of rows to e4m3, one program per row: alone, or at the end of the kernel that makes the rows."""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.quantization import E4M3, as_stored, store_quantized
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.quantized_rows import QuantizedRows, unfilled

FIRST_ARCH = 89  # whose tensor cores multiply e4m3
_E4M3 = tl.constexpr(E4M3)
_NUMBERS_OF_A_WARP = 512


@triton.jit
def store_row(numbers, stored, scales, row, features, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store one row of numbers [BLOCK] in e4m3, and its scale; those beyond its features are zeros."""
    at, column = row + tl.arange(0, 1), tl.arange(0, BLOCK)
    store_quantized(numbers, stored + row * features + column, scales + at, at >= 0, column < features, _E4M3)


@triton.jit
def quantize_kernel(x, stored, scales, features, x_stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    numbers = tl.load(x + row * x_stride + column, mask=column < features, other=0.0)
    store_row(numbers, stored, scales, row, features, BLOCK)


def quantize_rows(x: Tensor) -> QuantizedRows:
    """Return the rows of x [..., features] in e4m3."""
    return QuantizedRows(*_quantize(x))


@operator("quantize_rows(Tensor x) -> (Tensor, Tensor)", fake=unfilled)
def _quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.reshape(-1, x.shape[-1])
    assert rows.stride(1) == 1
    stored, scales = unfilled(x)
    if rows.numel():
        quantize_kernel[(rows.shape[0],)](
            *(rows, as_stored(stored), scales, rows.shape[1], rows.stride(0)), **row_block(rows.shape[1])
        )
    return stored, scales


def row_block(features: int) -> dict[str, Any]:
    """Return the options of a launch with one program per row."""
    block = triton.next_power_of_2(features)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // _NUMBERS_OF_A_WARP))}


def variants() -> Iterator[Variant]:
    """Return variants for the outputs of attention of an 8B and a 70B model at 16 rows."""
    rows, dtype = 16, torch.bfloat16
    for features in (4096, 8192):
        block = row_block(features)
        tensors = {"x": POINTERS["bfloat16"], "stored": POINTERS["float8_e4m3fn"], "scales": POINTERS["float32"]}
        yield Variant(
            f"quantize rows bfloat16 {features}",
            quantize_kernel,
            tensors | dict.fromkeys(("features", "x_stride"), "i32"),
            {"BLOCK": block["BLOCK"]},
            read_bytes=rows * features * (dtype.itemsize + 1),
            flops=2 * rows * features,
            warps=block["num_warps"],
            min_arch=FIRST_ARCH,
            aligned=frozenset({*tensors, "features", "x_stride"}),
        )
