"""Writing keys and values in Triton, bitwise equal to torch: in the interpreter, or on a GPU."""

import pytest
import torch
from simulated_memory import DEVICE
from torch import Tensor

from loragate.kernels.gpu.kv_write import write
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache

HEADS, PLACES, KEY_DIM, VALUE_DIM = 3, 40, 24, 8
TARGETS = torch.tensor([7, 39, 1, 20, 8])


def caches(dtype: torch.dtype, storage: torch.dtype) -> tuple[LayerCache, LayerCache]:
    shape = PLACES, HEADS, KEY_DIM, VALUE_DIM, dtype, DEVICE
    if storage == dtype:
        return LayerCache(*shape), LayerCache(*shape)
    return QuantizedLayerCache(*shape, storage), QuantizedLayerCache(*shape, storage)


def new_tokens(dtype: torch.dtype, size: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return keys and values as attention layers pass them: heads are strided within a row."""
    random = torch.Generator().manual_seed(0)
    rows = len(TARGETS)
    keys, values = (torch.randn(rows, HEADS, dim, generator=random) * size for dim in (KEY_DIM, VALUE_DIM))
    return keys.to(dtype).to(DEVICE).transpose(0, 1), values.to(dtype).to(DEVICE).transpose(0, 1)


def assert_same(ours: LayerCache, expected: LayerCache) -> None:
    for part, other in zip(ours.stored, expected.stored, strict=True):
        assert torch.equal(part, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("storage", [None, torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e4])
def test_equals_torch(dtype: torch.dtype, storage: torch.dtype | None, size: float) -> None:
    ours, expected = caches(dtype, storage or dtype)
    keys, values = new_tokens(dtype, size)
    write(ours, TARGETS.to(DEVICE), keys, values)
    expected.write(TARGETS.to(DEVICE), keys, values)
    assert_same(ours, expected)


@pytest.mark.parametrize("storage", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_zeros_and_ties_and_both_ends(storage: torch.dtype) -> None:
    ours, expected = caches(torch.float32, storage)
    keys, values = new_tokens(torch.float32)
    keys[0] = 0.0
    keys[1] = torch.linspace(-127, 127, KEY_DIM).round() + 0.5
    keys[1, :, 0], keys[1, :, 1] = 127.0, -127.0
    values[0] = torch.tensor([448.0, -448.0, 0.0, 2**-9, 3 * 2**-10, 17.0, 19.0, -0.001])
    write(ours, TARGETS.to(DEVICE), keys, values)
    expected.write(TARGETS.to(DEVICE), keys, values)
    assert_same(ours, expected)


@pytest.mark.parametrize("storage", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_nan_stays_with_its_own_token(storage: torch.dtype) -> None:
    ours, _ = caches(torch.float32, storage)
    keys, values = new_tokens(torch.float32)
    keys[1, 2, 5] = torch.nan
    write(ours, TARGETS.to(DEVICE), keys, values)
    stored, _ = ours.gather(TARGETS.to(DEVICE))
    assert stored[1, 2].isnan().all()
    assert stored.isnan().sum() == KEY_DIM
