"""Activation of the gate and its product in one pass, over the two halves of the fused output of gate and up.

If the result is quantized in the same launch, a program computes a whole row, which has one scale.
"""

from collections.abc import Iterator
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gated import Activation
from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.quantization import as_stored
from loragate.kernels.gpu.quantize_rows import FIRST_ARCH, row_block, store_row
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.quantized_rows import QuantizedRows, attach, unfilled

_BLOCK = 1024
_FAR = tl.constexpr(-80.0)  # beyond it a sigmoid is zero, and exp(-z) would overflow
_SILU, _GELU = tl.constexpr(Activation.SILU.value), tl.constexpr(Activation.GELU.value)


@triton.jit
def gated_kernel(  # type: ignore[no-untyped-def]
    gate,  # [rows, features]
    up,
    out,
    stored,  # [rows, features], e4m3; like `scales` unused unless QUANTIZES
    scales,
    features,
    gate_stride,
    up_stride,
    ACTIVATION: tl.constexpr,
    QUANTIZES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < features
    x = tl.load(gate + row * gate_stride + column, mask=there, other=0.0).to(tl.float32)
    if ACTIVATION == _SILU:
        active = x * _sigmoid(x)
    elif ACTIVATION == _GELU:
        active = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:  # (1 + tanh(z)) / 2 is the sigmoid of 2 z
        active = x * _sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    active = active.to(gate.dtype.element_ty).to(tl.float32)  # rounded between the two, as by two operators
    factor = tl.load(up + row * up_stride + column, mask=there, other=0.0).to(tl.float32)
    result = (active * factor).to(out.dtype.element_ty)
    tl.store(out + row * features + column, result, mask=there)
    if QUANTIZES:
        store_row(result, stored, scales, row, features, BLOCK)


@triton.jit
def _sigmoid(z):  # type: ignore[no-untyped-def]
    return 1.0 / (1.0 + tl.exp(-tl.maximum(z, _FAR)))


def gated(gate: Tensor, up: Tensor, activation: Activation, quantizes: bool = False) -> Tensor:
    """Compute `Activation.gated` of gate and up [..., features], whose rows may be slices of a wider tensor."""
    if quantizes:
        out, *rows = _quantized_gated(gate, up, activation.value)
        attach(out, QuantizedRows(*rows))
    else:
        out = _gated(gate, up, activation.value)
    result: Tensor = out
    return result


@operator("gated(Tensor gate, Tensor up, int activation) -> Tensor", fake=lambda gate, *_: gate.new_empty(gate.shape))
def _gated(gate: Tensor, up: Tensor, activation: int) -> Tensor:
    return _launch(gate, up, activation)


@operator(
    "gated_quantized(Tensor gate, Tensor up, int activation) -> (Tensor, Tensor, Tensor)",
    fake=lambda gate, *_: (gate.new_empty(gate.shape), *unfilled(gate)),
)
def _quantized_gated(gate: Tensor, up: Tensor, activation: int) -> tuple[Tensor, Tensor, Tensor]:
    stored, scales = unfilled(gate)
    return _launch(gate, up, activation, (stored, scales)), stored, scales


def _launch(gate: Tensor, up: Tensor, activation: int, quantized: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return the product, and fill `quantized`, its numbers in e4m3 and their scales."""
    features = gate.shape[-1]
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    gates, ups = gate.reshape(-1, features), up.reshape(-1, features)
    assert gates.stride(1) == ups.stride(1) == 1
    stored, scales = (out, out) if quantized is None else (as_stored(quantized[0]), quantized[1])
    options = {"BLOCK": _BLOCK} if quantized is None else row_block(features)
    if out.numel():
        gated_kernel[(gates.shape[0], triton.cdiv(features, options["BLOCK"]))](
            *(gates, ups, out, stored, scales, features, gates.stride(0), ups.stride(0)),
            ACTIVATION=activation,
            QUANTIZES=quantized is not None,
            **options,
        )
    return out


def variants() -> Iterator[Variant]:
    """Return variants for the MLP of an 8B Llama at 16 rows."""
    for dtype, activation in product((torch.bfloat16, torch.float16, torch.float32), Activation):
        yield _variant(dtype, activation)
    for activation in Activation:
        yield _variant(torch.bfloat16, activation, quantizes=True)


def _variant(dtype: torch.dtype, activation: Activation, *, quantizes: bool = False) -> Variant:
    rows, features, name = 16, 14336, str(dtype).removeprefix("torch.")
    tensors = dict.fromkeys(("gate", "up", "out", "stored", "scales"), POINTERS[name])
    options = {"BLOCK": _BLOCK, "num_warps": 4}
    if quantizes:
        tensors |= {"stored": POINTERS["float8_e4m3fn"], "scales": POINTERS["float32"]}
        options = row_block(features)
    sizes = ("features", "gate_stride", "up_stride")
    return Variant(
        f"gated {activation.name.lower()} {name}{' and quantize' if quantizes else ''}",
        gated_kernel,
        tensors | dict.fromkeys(sizes, "i32"),
        {"ACTIVATION": activation.value, "QUANTIZES": quantizes, "BLOCK": options["BLOCK"]},
        read_bytes=rows * features * (dtype.itemsize * 3 + quantizes),
        flops=(5 + 2 * quantizes) * rows * features,
        warps=options["num_warps"],
        min_arch=FIRST_ARCH if quantizes else 0,
        aligned=frozenset({*tensors, *sizes}),
    )
