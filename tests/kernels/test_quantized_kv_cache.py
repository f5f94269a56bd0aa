"""Keys and values in eight bits."""

import pytest
import torch

from loragate.kernels.attention_rows import AttentionOptions, DecodeRows
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import decode_attention, write_kv
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache
from loragate.kernels.quantized_rows import LARGEST, quantize

STORAGES = sorted(LARGEST, key=str)
CPU = torch.device("cpu")
ERROR = {torch.int8: 0.5 / 127, torch.float8_e4m3fn: 2**-4}  # of the largest entry: half a step


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_nothing_is_off_by_more_than_half_a_step(storage: torch.dtype) -> None:
    numbers = torch.randn(3, 50, 16, generator=torch.Generator().manual_seed(0)) * 7
    quantised, scale = quantize(numbers, storage)
    error = (quantised.float() * scale - numbers).abs()
    assert (error <= ERROR[storage] * numbers.abs().amax(-1, keepdim=True) * 1.001).all()


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_rewriting_read_values_changes_nothing(storage: torch.dtype) -> None:
    """Blocks that went to the host tier and came back are bitwise the same."""
    cache = QuantizedLayerCache(64, 2, 8, 4, torch.float32, CPU, storage)
    generator = torch.Generator().manual_seed(1)
    keys, values = torch.randn(2, 32, 8, generator=generator), torch.randn(2, 32, 4, generator=generator)
    write_kv(cache, torch.arange(16, 48), keys, values)
    once = cache.read_blocks(torch.arange(16, 48), 2)
    cache.write_blocks(torch.cat([torch.arange(48, 64), torch.arange(0, 16)]), once)
    again = cache.read_blocks(torch.cat([torch.arange(48, 64), torch.arange(0, 16)]), 2)
    assert torch.equal(once, again)
    for before, after in zip(cache.gather(torch.arange(16, 32)), cache.gather(torch.arange(48, 64)), strict=True):
        assert torch.equal(before, after)
    assert once.shape == (2, 16 * cache.numbers_per_place)


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_attention_stays_close(storage: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    plain = LayerCache(64, 2, 16, 16, torch.float32, CPU)
    small = QuantizedLayerCache(64, 2, 16, 16, torch.float32, CPU, storage)
    places = torch.randperm(63, generator=generator)[:40] + 1
    keys, values = torch.randn(2, 2, 40, 16, generator=generator)
    for cache in (plain, small):
        write_kv(cache, places, keys, values)
    rows = DecodeRows(places[None], torch.tensor([40]))
    query = torch.randn(4, 1, 16, generator=generator)
    exact, close = (decode_attention(query, cache, rows, AttentionOptions(0.25)) for cache in (plain, small))
    assert not torch.equal(exact, close)
    assert torch.allclose(exact, close, atol=0.08)


def test_the_null_place_holds_zeros_and_nan_stays_with_its_own_token() -> None:
    cache = QuantizedLayerCache(8, 1, 4, 4, torch.float32, CPU, torch.int8)
    bad = torch.full((1, 1, 4), float("nan"))
    write_kv(cache, torch.tensor([3]), bad, bad)
    keys, _ = cache.gather(torch.tensor([0, 3, 4]))
    assert (keys[:, [0, 2]] == 0).all()
    assert keys[:, 1].isnan().all()
