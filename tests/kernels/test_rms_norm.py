"""RMSNorm in one pass equals the formula on every path, and rows are independent."""

import pytest
import torch
from skip_for_missing import skip_for_missing
from torch import Tensor

from loragate.kernels import cpu
from loragate.kernels.rms_norm import RmsNorm

KINDS = {
    "Llama": RmsNorm(1e-6, rounds_first=True),
    "GPT-OSS": RmsNorm(1e-5),
    "Gemma": RmsNorm(1e-6, shift=1.0),
}
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True, params=["compiled", "in torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in torch":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        skip_for_missing("OpenMP as torch's wheels bring it, for compiled loops")


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def formula(x: Tensor, weight: Tensor, kind: RmsNorm) -> Tensor:
    x, weight = x.double(), weight.double()
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + kind.eps) * (weight + kind.shift)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("features", [1, 7, 64, 768])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_formula(kind: str, features: int, dtype: torch.dtype) -> None:
    x, weight = numbers(2, 5, features, dtype=dtype), numbers(features, dtype=dtype)
    out = KINDS[kind](x, weight)
    assert out.dtype == dtype
    assert torch.allclose(out.double(), formula(x, weight, KINDS[kind]), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_takes_strided_views() -> None:
    """Such as the heads of q in the fused output of q, k and v."""
    wide, weight = numbers(4, 3 * 64), numbers(64)
    x = wide.view(4, 3, 64)[:, 1]
    assert torch.equal(KINDS["Llama"](x, weight), KINDS["Llama"](x.clone(), weight))


def test_rows_do_not_affect_each_other() -> None:
    x, weight = numbers(5, 64), numbers(64)
    x[2] = torch.nan
    out = KINDS["Llama"](x, weight)
    assert out[2].isnan().all()
    for row in (0, 1, 3, 4):
        assert torch.equal(out[row], KINDS["Llama"](x[row : row + 1], weight)[0])


def test_no_rows() -> None:
    assert KINDS["Llama"](torch.empty(0, 64), numbers(64)).shape == (0, 64)
