"""RMSNorm with one program per row: each row is read once and written once.

A row may be the sum of two, as behind a residual connection (vLLM's `fused_add_rms_norm` does the same in place). The
sum is rounded as torch rounds it, and normalized after that, so the results are those of two launches.
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.variant import POINTERS, Variant

_NUMBERS_OF_A_WARP = 512


@triton.jit
def norm_kernel(  # type: ignore[no-untyped-def]
    x,  # [rows, features]
    added,  # [rows, features]; like `total` unused unless ADDS
    weight,
    total,
    out,
    features,
    x_stride,
    added_stride,
    eps,
    shift,
    ADDS: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
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
    tl.store(out + row * features + column, (normed * own).to(out.dtype.element_ty), mask=there)


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool) -> Tensor:
    """Normalize x [..., features] with weight [features] as `kernels.rms_norm.RmsNorm` does."""
    out: Tensor = _norm(x, weight, eps, shift, rounds_first)
    return out


def add_rms_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    """Return the sum of x and `added`, both [..., features], and the norm of the sum."""
    total, out = _add_norm(x, added, weight, eps, shift, rounds_first)
    return total, out


@operator(
    "rms_norm(Tensor x, Tensor weight, float eps, float shift, bool rounds_first) -> Tensor",
    fake=lambda x, *_: x.new_empty(x.shape),
)
def _norm(x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool) -> Tensor:
    return _launch(x, None, weight, eps, shift, rounds_first)[1]


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


def _launch(
    x: Tensor, added: Tensor | None, weight: Tensor, eps: float, shift: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    """Return the sum, or x where there is nothing to add, and the norm."""
    rows = x.reshape(-1, x.shape[-1])
    others = rows if added is None else added.reshape(-1, x.shape[-1])
    assert rows.stride(1) == others.stride(1) == 1
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = x if added is None else torch.empty_like(out)
    norm_kernel[(rows.shape[0],)](
        *(rows, others, weight, total, out, rows.shape[1], rows.stride(0), others.stride(0), eps, shift),
        ADDS=added is not None,
        ROUNDS_FIRST=rounds_first,
        **_block(rows.shape[1]),
    )
    return total, out


def _block(features: int) -> dict[str, Any]:
    block = triton.next_power_of_2(features)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // _NUMBERS_OF_A_WARP))}


def variants() -> Iterator[Variant]:
    """Return variants for the widths of heads and of models, at 16 rows, and of a sum."""
    rows = 16
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for features, adds in ((128, False), (4096, False), (8192, False), (4096, True), (8192, True)):
            block = _block(features)
            tensors = dict.fromkeys(("x", "added", "weight", "total", "out"), POINTERS[name])
            sizes = ("features", "x_stride", "added_stride")
            yield Variant(
                f"{'add and ' if adds else ''}rms norm {name} {features}",
                norm_kernel,
                tensors | dict.fromkeys(sizes, "i32") | dict.fromkeys(("eps", "shift"), "fp32"),
                {"ADDS": adds, "ROUNDS_FIRST": True, "BLOCK": block["BLOCK"]},
                read_bytes=dtype.itemsize * features * ((4 if adds else 2) * rows + 1),
                flops=(5 if adds else 4) * rows * features,
                warps=block["num_warps"],
                aligned=frozenset({*tensors, *sizes}),
            )
