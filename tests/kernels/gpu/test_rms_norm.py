"""RMSNorm in Triton against the same in torch."""

import pytest
import torch
from simulated_memory import DEVICE
from thinned import thinned

from loragate.kernels.gpu.rms_norm import rms_norm
from loragate.kernels.rms_norm import RmsNorm

KINDS = [RmsNorm(1e-6, rounds_first=True), RmsNorm(1e-5), RmsNorm(1e-6, shift=1.0)]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 2e-2}  # the interpreter truncates


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.float32, torch.bfloat16}), ids=str)
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
