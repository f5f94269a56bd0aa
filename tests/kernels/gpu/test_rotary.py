"""Rotary embeddings in Triton against the same in torch."""

import pytest
import torch
from simulated_memory import DEVICE
from thinned import thinned
from torch import Tensor

from loragate.kernels import rotary
from loragate.kernels.gpu.kv_write import write
from loragate.kernels.gpu.rotary import rotate, rotate_and_write, unfilled
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 2e-2}  # the interpreter truncates


def heads_of(rows: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return views of the fused output of q, k and v, as models make them."""
    random = torch.Generator().manual_seed(rows + dim)
    wide = torch.randn(1, rows, heads + 2 * kv_heads, dim, generator=random).to(dtype).to(DEVICE)
    return wide[:, :, :heads].transpose(1, 2), wide[:, :, heads : heads + kv_heads].transpose(1, 2)


def angles(rows: int, rotated: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angle = torch.rand(1, rows, rotated, generator=torch.Generator().manual_seed(rows)) * 100
    return angle.cos().to(dtype).to(DEVICE), angle.sin().to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
@pytest.mark.parametrize(("dim", "rotated"), [(64, 64), (64, 16), (80, 80), (80, 20), (2, 2)])
@pytest.mark.parametrize(("rows", "heads", "kv_heads"), [(1, 1, 1), (5, 4, 2), (3, 3, 1)])
def test_equals_the_same_in_torch(
    rows: int, heads: int, kv_heads: int, dim: int, rotated: int, dtype: torch.dtype
) -> None:
    query, key = heads_of(rows, heads, kv_heads, dim, dtype)
    for angles_dtype in {dtype, torch.float32}:  # some families keep them in single precision
        cos, sin = angles(rows, rotated, angles_dtype)
        for out, expected in zip(rotate(query, key, cos, sin), rotary.rotate(query, key, cos, sin), strict=True):
            assert out.dtype == dtype
            assert out.shape == expected.shape
            assert torch.allclose(out, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_input_is_not_changed() -> None:
    query, key = heads_of(3, 2, 1, 8, torch.float32)
    before = query.clone(), key.clone()
    rotate(query, key, *angles(3, 8, torch.float32))
    assert torch.equal(query, before[0])
    assert torch.equal(key, before[1])


def test_rows_do_not_affect_each_other() -> None:
    query, key = heads_of(3, 2, 1, 8, torch.float32)
    query[:, :, 1] = torch.nan
    rotated, keys = rotate(query, key, *angles(3, 8, torch.float32))
    assert rotated.isnan().any(dim=3)[0].tolist() == [[False, True, False]] * 2
    assert not keys.isnan().any()


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.bfloat16}), ids=str)
@pytest.mark.parametrize("storage", [None, torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "dim", "rotated", "value_dim"),
    thinned(
        [(3, 12, 9, 64, 64, 64), (5, 6, 2, 80, 20, 24), (1, 1, 1, 2, 2, 2)],
        fast={(5, 6, 2, 80, 20, 24), (1, 1, 1, 2, 2, 2)},
    ),
)
def test_rotating_and_writing_equals_two_launches(
    rows: int,
    heads: int,
    kv_heads: int,
    dim: int,
    rotated: int,
    value_dim: int,
    storage: torch.dtype | None,
    dtype: torch.dtype,
) -> None:
    query, key = heads_of(rows, heads, kv_heads, dim, dtype)
    random = torch.Generator().manual_seed(rows)
    values = torch.randn(rows, kv_heads, value_dim, generator=random).to(dtype).to(DEVICE).transpose(0, 1)
    targets = (torch.randperm(20, generator=random)[:rows] + 3).to(DEVICE)
    shape = 30, kv_heads, dim, value_dim, dtype, DEVICE
    for angles_dtype in {dtype, torch.float32}:
        given = query, key, *angles(rows, rotated, angles_dtype)
        ours, expected = (LayerCache(*shape) if storage is None else QuantizedLayerCache(*shape, storage) for _ in "ab")
        out = unfilled(query, key)
        rotate_and_write(out, *given, ours, targets, values)
        turned = rotate(*given)
        write(expected, targets, turned[1][0], values)
        for part, other in zip((*out, *ours.stored), (*turned, *expected.stored), strict=True):
            assert torch.equal(part, other)
