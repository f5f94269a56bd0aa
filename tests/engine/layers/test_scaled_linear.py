"""Products in e4m3 against float32, by torch's own operator as on a GPU, and in float32 as on a CPU."""

import pytest
import torch
from torch import Tensor

from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.kernels import gpu
from loragate.kernels.quantized_rows import QuantizedRows, quantize

E4M3 = torch.float8_e4m3fn

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="patches kernels onto the CPU")


@pytest.fixture(params=[True, False], ids=["gpu", "cpu"])
def on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(gpu, "serves", lambda device: request.param)
    return bool(request.param)


def made(
    out_features: int, in_features: int, *, biased: bool, dtype: torch.dtype
) -> tuple[ScaledLinear, Tensor, Tensor]:
    """Return a layer, its dequantized weight and its bias."""
    random = torch.Generator().manual_seed(out_features)
    weight = torch.randn(out_features, in_features, generator=random)
    bias = torch.randn(out_features, generator=random).to(dtype) if biased else None
    stored, scales = quantize(weight, E4M3)
    zeros = torch.zeros(out_features)
    return ScaledLinear(stored, scales, bias), stored.float() * scales, zeros if bias is None else bias.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.usefixtures("on_gpu")
def test_equals_float32(biased: bool, dtype: torch.dtype) -> None:
    linear, weight, bias = made(48, 64, biased=biased, dtype=dtype)
    x = (5 * torch.randn(7, 64, generator=torch.Generator().manual_seed(1))).to(dtype)
    rounded, scales = quantize(x, E4M3)
    expected = (rounded.float() * scales) @ weight.T + bias
    y = linear(x)
    assert y.dtype == dtype
    assert torch.allclose(y.float(), expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)
    assert torch.equal(linear.product(QuantizedRows(rounded, scales), dtype), y)
    exact = x.float() @ weight.T + bias
    assert 0.01 < float((y.float() - exact).norm() / exact.norm()) < 0.04


@pytest.mark.filterwarnings("ignore:invalid value")  # of the interpreter, which divides infinity by itself
@pytest.mark.usefixtures("on_gpu")
def test_a_row_that_is_no_number_does_not_affect_others() -> None:
    linear, *_ = made(32, 48, biased=True, dtype=torch.float32)
    x = torch.randn(4, 48)
    expected = linear(x)
    for bad in (torch.nan, torch.inf):
        x[2, 3] = bad
        y = linear(x)
        assert not y[2].isfinite().any()
        assert torch.equal(y[[0, 1, 3]], expected[[0, 1, 3]])


def test_a_rows_bits_do_not_depend_on_the_batch_on_a_cpu() -> None:
    """They would with torch's own operator, which adds up otherwise for more rows."""
    linear, *_ = made(96, 1024, biased=False, dtype=torch.float32)
    x = torch.randn(64, 1024)
    y = linear(x)
    for rows in (1, 3, 8, 33):
        assert torch.equal(linear(x[:rows]), y[:rows])
