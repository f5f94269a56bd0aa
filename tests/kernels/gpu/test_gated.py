"""Gated activations in Triton against the same in torch."""

import pytest
import torch
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels.gated import Activation
from loragate.kernels.gpu.gated import gated

TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 2e-2}  # the interpreter truncates


def halves(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return gate and up, side by side as in their fused output; gates from -10 to 10."""
    *rows, features = shape
    both = 3 * torch.randn(*rows, 2 * features, generator=torch.Generator().manual_seed(features)).to(dtype).to(DEVICE)
    return both[..., :features], both[..., features:]


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
@pytest.mark.parametrize("shape", [(1, 5, 100), (1, 2, 1024), (3, 1025), (4, 1)], ids=str)
@pytest.mark.parametrize("activation", Activation)
def test_equals_the_same_in_torch(activation: Activation, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gate, up = halves(*shape, dtype=dtype)
    out = gated(gate, up, activation)
    assert out.is_contiguous()
    assert out.dtype == dtype
    assert torch.allclose(out, activation.gated(gate, up), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("activation", Activation)
def test_extreme_values_neither_overflow_nor_change_sign(activation: Activation) -> None:
    gate = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4]], device=DEVICE)
    out = gated(gate, torch.ones_like(gate), activation)
    assert torch.allclose(out, gate.clamp(min=0))


def test_rows_do_not_affect_each_other() -> None:
    gate, up = halves(3, 64)
    gate[1] = torch.nan
    assert gated(gate, up, Activation.SILU).isnan().any(dim=1).tolist() == [False, True, False]


def test_no_rows() -> None:
    assert gated(*halves(1, 0, 8), Activation.SILU).shape == (1, 0, 8)
