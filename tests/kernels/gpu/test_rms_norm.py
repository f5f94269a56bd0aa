"""RMSNorm in Triton against the same in torch."""

import pytest
import torch
import triton
from simulated_memory import DEVICE
from thinned import thinned

from loragate.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from loragate.kernels.rms_norm import RmsNorm

KINDS = [RmsNorm(1e-6, rounds_first=True), RmsNorm(1e-5), RmsNorm(1e-6, shift=1.0)]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 2e-2}  # the interpreter truncates


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
@pytest.mark.parametrize("features", [1, 64, 100, 768])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_equals_the_same_in_torch(kind: RmsNorm, features: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(features)
    x, weight = (torch.randn(*s, generator=random).to(dtype).to(DEVICE) for s in ((2, 3, features), (features,)))
    tolerance = TOLERANCE[dtype]
    out = rms_norm(x, weight, kind.eps, kind.shift, kind.rounds_first)
    assert torch.allclose(out, kind.reference(x, weight), rtol=tolerance, atol=tolerance)


def test_rows_do_not_affect_each_other() -> None:
    x, weight = torch.randn(3, 64, device=DEVICE), torch.ones(64, device=DEVICE)
    x[1] = torch.nan
    out = rms_norm(x, weight, eps=1e-6, shift=0.0, rounds_first=True)
    assert out.isnan().any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("features", [1, 100, 768])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sum_and_its_norm_equal_two_launches(kind: RmsNorm, features: int, dtype: torch.dtype) -> None:
    """Bitwise. Numbers of bfloat16 are eighths where the interpreter would truncate their sum."""
    random = torch.Generator().manual_seed(features)
    shapes = (6, 2 * features), (2, 3, features), (features,)
    wide, added, weight = (torch.randn(*shape, generator=random) for shape in shapes)
    if dtype == torch.bfloat16 and triton.knobs.runtime.interpret:
        wide, added = ((8 * numbers).round() / 8 for numbers in (wide, added))
    wide, added, weight = (numbers.to(dtype).to(DEVICE) for numbers in (wide, added, weight))
    for x in (wide[:, :features].unflatten(0, (2, 3)), added[:1] * 3):  # rows apart, and one of 3 rows
        other = added[: x.shape[0]]
        total, out = add_rms_norm(x, other, weight, kind.eps, kind.shift, kind.rounds_first)
        assert torch.equal(total, x + other)
        assert torch.equal(out, rms_norm(x + other, weight, kind.eps, kind.shift, kind.rounds_first))


def test_the_norm_is_that_of_the_rounded_sum() -> None:
    x, added = (torch.full((1, 4), size, dtype=torch.float16, device=DEVICE) for size in (2048.0, 1.0))
    total, out = add_rms_norm(x, added, torch.ones_like(x[0]), eps=2.0**24, shift=0.0, rounds_first=False)
    assert total.tolist() == [[2048.0] * 4], "2049 has no representation"
    assert torch.equal(out, rms_norm(total, torch.ones_like(x[0]), 2.0**24, 0.0, rounds_first=False))
