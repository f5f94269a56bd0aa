"""Decode attention in Triton against plain attention in float64: in the interpreter, or on a GPU."""

from itertools import product

import pytest
import torch
from attention import DIM, HEADS, KV_HEADS, PLACES, VARIANTS, decode_rows, filled_cache, options_on, reference
from simulated_memory import DEVICE
from thinned import thinned

from loragate.kernels.attention_rows import DecodeRows
from loragate.kernels.gpu import decode_attention as kernels
from loragate.kernels.gpu import quantization
from loragate.kernels.gpu.decode_attention import decode_attention
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import gathered_decode_attention, write_kv
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache

SPLITS_FOR = kernels.splits_for
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def short_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes splits short, so that short sequences have several, and several programs."""
    monkeypatch.setattr(kernels, "KV_CHUNK", 32)
    monkeypatch.setattr(kernels, "splits_for", lambda kv_heads: 2)
    monkeypatch.setattr(kernels, "BLOCK", 16)


def on_device(cache: LayerCache, dtype: torch.dtype) -> LayerCache:
    copy = LayerCache(PLACES, KV_HEADS, DIM, DIM, dtype, DEVICE)
    copy.keys.copy_(cache.keys)
    copy.values.copy_(cache.values)
    return copy


def rows_on_device(places: list[torch.Tensor], padding: int = 0) -> DecodeRows:
    rows = decode_rows(places, padding)
    return DecodeRows(rows.token_places.to(DEVICE), rows.lengths.to(DEVICE))


def queries(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(HEADS, count, DIM, generator=torch.Generator().manual_seed(1)).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.float32, torch.bfloat16}), ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_plain_attention(variant: str, dtype: torch.dtype) -> None:
    cache, places, keys, values = filled_cache([1, 7, 32, 33, 70], 1)
    query = queries(5, dtype)
    out = decode_attention(query, on_device(cache, dtype), rows_on_device(places), options_on(DEVICE, variant))
    assert out.dtype == dtype
    for row in range(5):
        stored = keys[row].to(dtype), values[row].to(dtype)
        expected = reference(query[:, row : row + 1].cpu(), *stored, VARIANTS[variant])
        assert torch.allclose(out[:, row].double().cpu(), expected[:, 0], atol=TOLERANCE[dtype]), row


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sequence_is_bitwise_the_same_alone_and_in_a_batch(variant: str) -> None:
    """The rest of the cache, NaN included, changes nothing either."""
    cache, places, _, _ = filled_cache([16, 80])
    query = queries(2, torch.float32)
    alone = decode_attention(
        query[:, :1], on_device(cache, torch.float32), rows_on_device(places[:1]), options_on(DEVICE, variant)
    )
    unused = sorted(set(range(1, PLACES)) - set(torch.cat(places).tolist()))
    write_kv(cache, torch.tensor(unused), *torch.full((2, KV_HEADS, len(unused), DIM), float("nan")))
    together = decode_attention(
        query, on_device(cache, torch.float32), rows_on_device(places, padding=16), options_on(DEVICE, variant)
    )
    assert torch.equal(alone[:, 0], together[:, 0])


def test_models_with_few_heads_of_keys_have_more_splits() -> None:
    assert [SPLITS_FOR(kv_heads) for kv_heads in (1, 2, 4, 6, 8, 32)] == [64, 64, 32, 32, 16, 16]


@pytest.mark.parametrize(("key_dim", "value_dim", "kv_heads"), [(64, 64, 6), (80, 80, 1), (24, 8, 3), (256, 128, 2)])
def test_head_sizes_and_groups(key_dim: int, value_dim: int, kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(2)
    cache = LayerCache(PLACES, kv_heads, key_dim, value_dim, torch.float32, DEVICE)
    places = torch.arange(1, 41)
    keys = torch.randn(kv_heads, 40, key_dim, generator=generator)
    values = torch.randn(kv_heads, 40, value_dim, generator=generator)
    write_kv(cache, places.to(DEVICE), keys.to(DEVICE), values.to(DEVICE))
    query = torch.randn(HEADS, 1, key_dim, generator=generator)
    out = decode_attention(query.to(DEVICE), cache, rows_on_device([places]), options_on(DEVICE, "plain")).cpu()
    group = HEADS // kv_heads
    scores = query @ keys.repeat_interleave(group, 0).transpose(1, 2) * VARIANTS["plain"].scale
    assert torch.allclose(out, scores.softmax(-1) @ values.repeat_interleave(group, 0), atol=1e-5)


EIGHT_BITS = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn, "e4m3 by its bits": torch.float8_e4m3fn}


def quantized(numbers: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> QuantizedLayerCache:
    """Return an empty cache of eight-bit numbers, which kernels convert in this way."""
    if numbers == "e4m3 by its bits":
        monkeypatch.setattr(quantization, "has_float8", lambda device: False)
    elif numbers == "e4m3" and not quantization.has_float8(DEVICE):
        pytest.skip("this GPU has no float8")
    return QuantizedLayerCache(PLACES, KV_HEADS, DIM, DIM, dtype, DEVICE, EIGHT_BITS[numbers])


@pytest.mark.parametrize(
    ("variant", "numbers"), thinned(product(VARIANTS, EIGHT_BITS), fast=set(product(("plain", "all"), EIGHT_BITS)))
)
def test_eight_bits_are_read_as_torch_reads_them(variant: str, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, places, keys, values = filled_cache([1, 33, 70])
    small = quantized(numbers, torch.float32, monkeypatch)
    for mine, k, v in zip(places, keys, values, strict=True):
        small.write(mine.to(DEVICE), k.to(DEVICE), v.to(DEVICE))  # in torch, which has no launches
    rows, query = rows_on_device(places), queries(3, torch.float32)
    out = decode_attention(query, small, rows, options_on(DEVICE, variant))
    expected = gathered_decode_attention(query, small, rows, options_on(DEVICE, variant))
    assert torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("numbers", EIGHT_BITS)
def test_small_values_at_many_positions(numbers: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of a weight and a scale is smaller than the smallest float16."""
    small = quantized(numbers, dtype, monkeypatch)
    places = torch.arange(1, PLACES, device=DEVICE)
    values = torch.full((KV_HEADS, len(places), DIM), 1e-5, dtype=dtype, device=DEVICE)
    small.write(places, torch.zeros_like(values), values)
    out = decode_attention(queries(1, dtype), small, rows_on_device([places.cpu()]), VARIANTS["plain"])
    assert torch.allclose(out.float(), torch.full_like(out, 1e-5).float(), rtol=0.03, atol=0)


def test_a_token_that_is_not_a_number_spoils_its_own_sequence_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight bits have no room for it everywhere; its scale says so."""
    for numbers in EIGHT_BITS:
        small = quantized(numbers, torch.float32, monkeypatch)
        _, places, keys, values = filled_cache([3, 5])
        keys[0][:, 2, 3] = torch.nan
        for mine, k, v in zip(places, keys, values, strict=True):
            write_kv(small, mine.to(DEVICE), k.to(DEVICE), v.to(DEVICE))
        out = decode_attention(queries(2, torch.float32), small, rows_on_device(places), VARIANTS["plain"])
        assert out[:, 0].isnan().any()
        assert out[:, 1].isfinite().all()
