"""RMSNorm with one program per row: each row is read once and written once.

A row may be the sum of two, as behind a residual connection (vLLM's `fused_add_rms_norm` does the same in place). The
sum is rounded as torch rounds it, and normalized after that, so the results are those of two launches. The norm may be
quantized as well, for products in eight bits, which is not another launch either.
"""

from collections.abc import Iterator
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.quantization import as_stored
from loragate.kernels.gpu.quantize_rows import FIRST_ARCH, row_block, store_row
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.quantized_rows import QuantizedRows, attach, unfilled


@triton.jit
def norm_kernel(  # type: ignore[no-untyped-def]
    x,  # [rows, features]
    added,  # [rows, features]; like `total` unused unless ADDS
    weight,
    total,
    out,
    stored,  # [rows, features], e4m3; like `scales` unused unless QUANTIZES
    scales,
    features,
    x_stride,
    added_stride,
    eps,
    shift,
    ADDS: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
    QUANTIZES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    there = column < features
    numbers = tl.load(x + row * x_stride + column, mask=there, other=0.0).to(tl.float32)
    if ADDS:
        other = tl.load(added + row * added_stride + column, mask=there, other=0.0).to(tl.float32)
        rounded = (numbers + other).to(x.dtype.element_ty)
        tl.store(total + row * features + column, rounded, mask=there)
        numbers = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(numbers * numbers) / features + eps)
    normed = numbers * scale
    own = tl.load(weight + column, mask=there, other=0.0).to(tl.float32) + shift
    if ROUNDS_FIRST:
        normed = normed.to(x.dtype.element_ty).to(tl.float32)
    normed = (normed * own).to(out.dtype.element_ty)
    tl.store(out + row * features + column, normed, mask=there)
    if QUANTIZES:
        store_row(normed, stored, scales, row, features, BLOCK)


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool, quantizes: bool = False
) -> Tensor:
    """Normalize x [..., features] with weight [features] as `kernels.rms_norm.RmsNorm` does."""
    if quantizes:
        return _with_rows(*_quantized_norm(x, weight, eps, shift, rounds_first))
    out: Tensor = _norm(x, weight, eps, shift, rounds_first)
    return out


def add_rms_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool, quantizes: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the sum of x and `added`, both [..., features], and the norm of the sum."""
    if quantizes:
        total, *results = _add_quantized_norm(x, added, weight, eps, shift, rounds_first)
        return total, _with_rows(*results)
    total, out = _add_norm(x, added, weight, eps, shift, rounds_first)
    return total, out


def _with_rows(out: Tensor, stored: Tensor, scales: Tensor) -> Tensor:
    attach(out, QuantizedRows(stored, scales))
    return out


@operator(
    "rms_norm(Tensor x, Tensor weight, float eps, float shift, bool rounds_first) -> Tensor",
    fake=lambda x, *_: x.new_empty(x.shape),
)
def _norm(x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool) -> Tensor:
    return _launch(x, None, weight, eps, shift, rounds_first)[1]


@operator(
    "rms_norm_quantized(Tensor x, Tensor weight, float eps, float shift, bool rounds_first) "
    "-> (Tensor, Tensor, Tensor)",
    fake=lambda x, *_: (x.new_empty(x.shape), *unfilled(x)),
)
def _quantized_norm(
    x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    stored, scales = unfilled(x)
    return _launch(x, None, weight, eps, shift, rounds_first, (stored, scales))[1], stored, scales


@operator(
    "add_rms_norm(Tensor x, Tensor added, Tensor weight, float eps, float shift, bool rounds_first) "
    "-> (Tensor, Tensor)",
    fake=lambda x, *_: (x.new_empty(x.shape), x.new_empty(x.shape)),
)
def _add_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    assert (added.shape, added.dtype) == (x.shape, x.dtype)
    return _launch(x, added, weight, eps, shift, rounds_first)


@operator(
    "add_rms_norm_quantized(Tensor x, Tensor added, Tensor weight, float eps, float shift, bool rounds_first) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    fake=lambda x, *_: (x.new_empty(x.shape), x.new_empty(x.shape), *unfilled(x)),
)
def _add_quantized_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert (added.shape, added.dtype) == (x.shape, x.dtype)
    stored, scales = unfilled(x)
    return *_launch(x, added, weight, eps, shift, rounds_first, (stored, scales)), stored, scales


def _launch(
    x: Tensor,
    added: Tensor | None,
    weight: Tensor,
    eps: float,
    shift: float,
    rounds_first: bool,
    quantized: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sum, or x where there is nothing to add, and the norm; fill `quantized`, numbers and scales."""
    rows = x.reshape(-1, x.shape[-1])
    others = rows if added is None else added.reshape(-1, x.shape[-1])
    assert rows.stride(1) == others.stride(1) == 1
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = x if added is None else torch.empty_like(out)
    stored, scales = (out, out) if quantized is None else (as_stored(quantized[0]), quantized[1])
    norm_kernel[(rows.shape[0],)](
        *(rows, others, weight, total, out, stored, scales),
        *(rows.shape[1], rows.stride(0), others.stride(0), eps, shift),
        ADDS=added is not None,
        ROUNDS_FIRST=rounds_first,
        QUANTIZES=quantized is not None,
        **row_block(rows.shape[1]),
    )
    return total, out


def variants() -> Iterator[Variant]:
    """Return variants for the widths of heads and of models, at 16 rows, of a sum, and quantized."""
    plain = (128, False), (4096, False), (8192, False), (4096, True), (8192, True)
    for dtype, (features, adds) in product((torch.bfloat16, torch.float16, torch.float32), plain):
        yield _variant(dtype, features, adds=adds)
    for features, adds in plain[1:]:
        yield _variant(torch.bfloat16, features, adds=adds, quantizes=True)


def _variant(dtype: torch.dtype, features: int, *, adds: bool, quantizes: bool = False) -> Variant:
    rows, block, name = 16, row_block(features), str(dtype).removeprefix("torch.")
    tensors = dict.fromkeys(("x", "added", "weight", "total", "out", "stored", "scales"), POINTERS[name])
    if quantizes:
        tensors |= {"stored": POINTERS["float8_e4m3fn"], "scales": POINTERS["float32"]}
    sizes = ("features", "x_stride", "added_stride")
    return Variant(
        f"{'add and ' if adds else ''}rms norm {name} {features}{' and quantize' if quantizes else ''}",
        norm_kernel,
        tensors | dict.fromkeys(sizes, "i32") | dict.fromkeys(("eps", "shift"), "fp32"),
        {"ADDS": adds, "ROUNDS_FIRST": True, "QUANTIZES": quantizes, "BLOCK": block["BLOCK"]},
        read_bytes=features * (dtype.itemsize * ((4 if adds else 2) * rows + 1) + (rows if quantizes else 0)),
        flops=(4 + adds + 2 * quantizes) * rows * features,
        warps=block["num_warps"],
        min_arch=FIRST_ARCH if quantizes else 0,
        aligned=frozenset({*tensors, *sizes}),
    )
