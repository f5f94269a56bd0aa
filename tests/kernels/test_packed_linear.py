"""The packed linear computes what F.linear does, each row by itself."""

import pytest
import torch
import torch.nn.functional as F

from loragate.kernels import packed_linear
from loragate.kernels.packed_linear import PackedLinear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_equals_linear(rows: int, bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(48, 40, generator=generator), torch.randn(rows, 40, generator=generator)
    b = torch.randn(48, generator=generator) if bias else None
    assert torch.allclose(PackedLinear(weight, b)(x), F.linear(x, weight, b), atol=1e-4)


def test_a_transposed_weight_is_read_as_such() -> None:
    weight, x = torch.randn(40, 48).T, torch.randn(3, 40)
    assert torch.allclose(PackedLinear(weight, None)(x), F.linear(x, weight), atol=1e-4)


def test_without_the_private_operators_it_still_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "_can_pack", lambda device, dtype: False)
    weight, x = torch.randn(48, 40), torch.randn(3, 40)
    assert torch.equal(PackedLinear(weight, None)(x), F.linear(x, weight))
