"""Activation of the gate and its product in one pass, over the two halves of the fused output of gate and up."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gated import Activation
from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.variant import POINTERS, Variant

_BLOCK = 1024
_FAR = tl.constexpr(-80.0)  # beyond it a sigmoid is zero, and exp(-z) would overflow
_SILU, _GELU = tl.constexpr(Activation.SILU.value), tl.constexpr(Activation.GELU.value)


@triton.jit
def gated_kernel(  # type: ignore[no-untyped-def]
    gate, up, out, features, gate_stride, up_stride, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
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
    tl.store(out + row * features + column, (active * factor).to(out.dtype.element_ty), mask=there)


@triton.jit
def _sigmoid(z):  # type: ignore[no-untyped-def]
    return 1.0 / (1.0 + tl.exp(-tl.maximum(z, _FAR)))


def gated(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """Compute `Activation.gated` of gate and up [..., features], whose rows may be slices of a wider tensor."""
    out: Tensor = _gated(gate, up, activation.value)
    return out


@operator("gated(Tensor gate, Tensor up, int activation) -> Tensor", fake=lambda gate, *_: gate.new_empty(gate.shape))
def _gated(gate: Tensor, up: Tensor, activation: int) -> Tensor:
    features = gate.shape[-1]
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    gates, ups = gate.reshape(-1, features), up.reshape(-1, features)
    assert gates.stride(1) == ups.stride(1) == 1
    if out.numel():
        gated_kernel[(gates.shape[0], triton.cdiv(features, _BLOCK))](
            gates, ups, out, features, gates.stride(0), ups.stride(0), ACTIVATION=activation, BLOCK=_BLOCK
        )
    return out


def variants() -> Iterator[Variant]:
    """Return variants for the MLP of an 8B Llama at 16 rows."""
    rows, features = 16, 14336
    tensors, sizes = ("gate", "up", "out"), ("features", "gate_stride", "up_stride")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for activation in Activation:
            yield Variant(
                f"gated {activation.name.lower()} {name}",
                gated_kernel,
                dict.fromkeys(tensors, POINTERS[name]) | dict.fromkeys(sizes, "i32"),
                {"ACTIVATION": activation.value, "BLOCK": _BLOCK},
                read_bytes=dtype.itemsize * rows * features * 3,
                flops=5 * rows * features,
                aligned=frozenset({*tensors, *sizes}),
            )
