"""RMSNorm with one program per row: each row is read once and written once."""

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
    x, weight, out, features, x_stride, eps, shift, ROUNDS_FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    there = column < features
    numbers = tl.load(x + row * x_stride + column, mask=there, other=0.0).to(tl.float32)
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


@operator(
    "rms_norm(Tensor x, Tensor weight, float eps, float shift, bool rounds_first) -> Tensor",
    fake=lambda x, *_: x.new_empty(x.shape),
)
def _norm(x: Tensor, weight: Tensor, eps: float, shift: float, rounds_first: bool) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    assert rows.stride(1) == 1
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    norm_kernel[(rows.shape[0],)](
        *(rows, weight, out, rows.shape[1], rows.stride(0), eps, shift),
        ROUNDS_FIRST=rounds_first,
        **_launch(rows.shape[1]),
    )
    return out


def _launch(features: int) -> dict[str, Any]:
    block = triton.next_power_of_2(features)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // _NUMBERS_OF_A_WARP))}


def variants() -> Iterator[Variant]:
    """Return variants for the widths of heads and of models, at 16 rows."""
    rows = 16
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for features in (128, 4096, 8192):
            launch = _launch(features)
            tensors = dict.fromkeys(("x", "weight", "out"), POINTERS[name])
            yield Variant(
                f"rms norm {name} {features}",
                norm_kernel,
                tensors | {"features": "i32", "x_stride": "i32", "eps": "fp32", "shift": "fp32"},
                {"ROUNDS_FIRST": True, "BLOCK": launch["BLOCK"]},
                read_bytes=dtype.itemsize * features * (2 * rows + 1),
                flops=4 * rows * features,
                warps=launch["num_warps"],
                aligned=frozenset({*tensors, "features", "x_stride"}),
            )
