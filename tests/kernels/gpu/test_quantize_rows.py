"""Rows in e4m3: alone or with the norm or the product that makes them, bitwise equal to torch."""

import pytest
import torch
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels.gated import Activation
from loragate.kernels.gpu.gated import gated
from loragate.kernels.gpu.quantize_rows import quantize_rows
from loragate.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from loragate.kernels.quantized_rows import QuantizedRows, attached, detach, quantize
from loragate.kernels.rms_norm import RmsNorm

E4M3 = torch.float8_e4m3fn
DTYPES = thinned([torch.bfloat16, torch.float16, torch.float32], fast={torch.bfloat16, torch.float32})
KINDS = [RmsNorm(1e-6, rounds_first=True), RmsNorm(1e-5), RmsNorm(1e-6, shift=1.0)]


def numbers(*shape: int, size: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    random = torch.Generator().manual_seed(sum(shape))
    return (size * torch.randn(*shape, generator=random)).to(dtype).to(DEVICE)


def assert_quantized(rows: QuantizedRows | None, x: Tensor) -> None:
    """Assert that these are the rows of x, to the last bit."""
    assert rows is not None
    expected, scales = quantize(x.reshape(-1, x.shape[-1]), E4M3)
    assert torch.equal(rows.scales, scales)
    assert rows.numbers.dtype == E4M3
    assert torch.equal(rows.numbers.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("features", [1, 64, 100, 768])
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e4])
def test_equals_torch(size: float, features: int, dtype: torch.dtype) -> None:
    wide = numbers(6, 2 * features, size=size, dtype=dtype)
    for x in (wide[:, :features].unflatten(0, (2, 3)), wide):  # rows apart, and side by side
        assert_quantized(quantize_rows(x), x)


def test_zeros_and_ties_and_both_ends() -> None:
    ends = torch.tensor([448.0, -448.0, 0.0, 2**-9, 3 * 2**-10, 2**-10, 17.0, 19.0, -0.001, -31.0])
    x = torch.stack([ends, torch.zeros_like(ends)]).to(DEVICE)
    assert_quantized(quantize_rows(x), x)


def test_nothing_is_off_by_more_than_half_a_step() -> None:
    x = numbers(5, 300)
    rows = quantize_rows(x)
    error = (rows.numbers.float() * rows.scales - x).abs()
    assert (error <= (x.abs() * 2**-4).clamp(min=2**-10 * float(rows.scales.max())) * 1.001).all()


@pytest.mark.filterwarnings("ignore:invalid value")  # of the interpreter, which divides infinity by itself
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_rows_do_not_affect_each_other(bad: float) -> None:
    x = numbers(3, 64)
    clean = quantize_rows(x)
    x[1, 5] = bad
    rows = quantize_rows(x)
    assert not rows.scales[1].isfinite().any()
    for row in (0, 2):
        assert torch.equal(rows.scales[row], clean.scales[row])
        assert torch.equal(rows.numbers[row].view(torch.uint8), clean.numbers[row].view(torch.uint8))


def test_no_rows() -> None:
    assert quantize_rows(numbers(0, 8)).numbers.shape == (0, 8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("features", [1, 100, 768])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_quantized_norm_equals_two_launches(kind: RmsNorm, features: int, dtype: torch.dtype) -> None:
    x, added, weight = (numbers(*shape, dtype=dtype) for shape in ((2, 3, features), (2, 3, features), (features,)))
    options = kind.eps, kind.shift, kind.rounds_first
    out = rms_norm(x, weight, *options, True)
    assert torch.equal(out, rms_norm(x, weight, *options))
    assert_quantized(attached(out), out)
    total, out = add_rms_norm(x, added, weight, *options, True)
    expected = add_rms_norm(x, added, weight, *options)
    assert torch.equal(total, expected[0])
    assert torch.equal(out, expected[1])
    assert_quantized(attached(out), out)
    assert attached(total) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 5, 100), (2, 1025), (4, 1), (1, 0, 8)], ids=str)
@pytest.mark.parametrize("activation", Activation)
def test_a_quantized_gate_equals_two_launches(
    activation: Activation, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Also where a row is wider than a block of the launch that does not quantize."""
    both = numbers(*shape[:-1], 2 * shape[-1], size=3.0, dtype=dtype)
    gate, up = both[..., : shape[-1]], both[..., shape[-1] :]
    out = gated(gate, up, activation, True)
    assert torch.equal(out, gated(gate, up, activation))
    assert_quantized(attached(out), out)


def test_rows_are_those_of_one_tensor_until_it_changes() -> None:
    out = rms_norm(numbers(2, 16), numbers(16), 1e-6, 0.0, True, True)
    assert attached(out) is not None
    assert attached(out.clone()) is None
    detach(out)
    assert attached(out) is None
    detach(out)
