"""The packed linear computes what F.linear does, each row by itself."""

import pytest
import torch
import torch.nn.functional as F

from loragate.kernels import packed_linear
from loragate.kernels.packed_linear import BLOCK_ROWS, PackedLinear, in_blocks


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


@pytest.mark.parametrize("rows", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 5])
def test_blocks_all_have_the_same_rows(rows: int) -> None:
    """A library may choose another order of sums for each number of rows, as this product does."""
    sizes: set[int] = set()
    weight, x = torch.randn(6, 8), torch.randn(rows, 8)

    def product(block: torch.Tensor) -> torch.Tensor:
        sizes.add(block.shape[0])
        return F.linear(block, weight) + block.shape[0]

    assert torch.allclose(in_blocks(product, x), F.linear(x, weight) + BLOCK_ROWS, atol=1e-4)
    assert sizes <= {BLOCK_ROWS} | ({0} if rows == 0 else set())
