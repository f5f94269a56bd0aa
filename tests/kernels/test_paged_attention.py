"""Paged attention against plain attention over contiguous keys, in float64."""

from dataclasses import replace

import pytest
import torch
from attention import DIM, HEADS, KV_HEADS, PLACES, VARIANTS, decode_rows, filled_cache, reference
from skip_for_missing import skip_for_missing

from loragate.kernels import cpu
from loragate.kernels.attention_rows import PrefillRows
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import decode_attention, prefill_attention, write_kv


@pytest.fixture(autouse=True, params=["in place", "gathered"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to decode on a CPU: products over the cache in place, and over a copy of what a batch needs."""
    if request.param == "gathered":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        skip_for_missing("OpenMP as torch's wheels bring it, for compiled loops")
    return str(request.param)


@pytest.mark.parametrize("block", [1, 8, 16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_decode_equals_plain_attention(variant: str, block: int) -> None:
    cache, places, keys, values = filled_cache([1, 7, 30, 64], block)
    query = torch.randn(HEADS, 4, DIM, generator=torch.Generator().manual_seed(1))
    out = decode_attention(query, cache, decode_rows(places), VARIANTS[variant])
    for row in range(4):
        expected = reference(query[:, row : row + 1], keys[row], values[row], VARIANTS[variant])
        assert torch.allclose(out[:, row].double(), expected[:, 0], atol=1e-5), row


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("context", "chunk"), [(0, 1), (0, 12), (20, 12), (40, 3)])
def test_prefill_equals_plain_attention(variant: str, context: int, chunk: int) -> None:
    cache, (places,), (keys,), (values,) = filled_cache([context + chunk])
    query = torch.randn(HEADS, chunk, DIM, generator=torch.Generator().manual_seed(1))
    out = prefill_attention(query, cache, PrefillRows(0, chunk, context, places), VARIANTS[variant])
    assert torch.allclose(out.double(), reference(query, keys, values, VARIANTS[variant]), atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_does_not_reach_a_row(variant: str) -> None:
    """The rest of the cache, NaN included, changes nothing, bitwise."""
    cache, places, _, _ = filled_cache([16, 48])
    query = torch.randn(HEADS, 2, DIM, generator=torch.Generator().manual_seed(1))
    alone = decode_attention(query[:, :1], cache, decode_rows(places[:1]), VARIANTS[variant])
    unused = sorted(set(range(1, PLACES)) - set(torch.cat(places).tolist()))
    write_kv(cache, torch.tensor(unused), *torch.full((2, KV_HEADS, len(unused), DIM), float("nan")))
    together = decode_attention(query, cache, decode_rows(places, padding=16), VARIANTS[variant])
    assert torch.equal(alone[:, 0], together[:, 0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_decode_over_a_cache_of_bfloat16(variant: str) -> None:
    cache, places, keys, values = filled_cache([3, 40], 8)
    half = LayerCache(PLACES, KV_HEADS, DIM, DIM, torch.bfloat16, torch.device("cpu"))
    half.keys.copy_(cache.keys)
    half.values.copy_(cache.values)
    query = torch.randn(HEADS, 2, DIM, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = decode_attention(query, half, decode_rows(places), VARIANTS[variant])
    assert out.dtype == torch.bfloat16
    for row in range(2):
        stored = keys[row].bfloat16(), values[row].bfloat16()
        expected = reference(query[:, row : row + 1], *stored, VARIANTS[variant])
        assert torch.allclose(out[:, row].double(), expected[:, 0], atol=2e-2), row


def test_layers_of_different_shapes_and_windows_share_a_step() -> None:
    cache, places, keys, values = filled_cache([7, 30], 8)
    rows = decode_rows(places)
    query = torch.randn(HEADS, 2, DIM, generator=torch.Generator().manual_seed(1))
    for options in (VARIANTS["plain"], VARIANTS["window"], VARIANTS["plain"]):
        out = decode_attention(query, cache, rows, options)
        assert torch.allclose(out[:, 1:].double(), reference(query[:, 1:], keys[1], values[1], options), atol=1e-5)
    narrow = LayerCache(PLACES, HEADS, DIM // 2, DIM // 4, torch.float32, torch.device("cpu"))
    write_kv(narrow, places[1], keys[1].repeat(3, 1, 1)[..., : DIM // 2], values[1].repeat(3, 1, 1)[..., : DIM // 4])
    out = decode_attention(query[..., : DIM // 2], narrow, rows, VARIANTS["plain"])
    assert out.shape == (HEADS, 2, DIM // 4)
    scores = query[:, 1:, : DIM // 2] @ keys[1].repeat(3, 1, 1)[..., : DIM // 2].transpose(1, 2) * 0.25
    expected = scores.softmax(-1) @ values[1].repeat(3, 1, 1)[..., : DIM // 4]
    assert torch.allclose(out[:, 1:], expected, atol=1e-5)


def test_an_infinite_window_is_no_window() -> None:
    cache, places, _, _ = filled_cache([20])
    query = torch.randn(HEADS, 1, DIM, generator=torch.Generator().manual_seed(1))
    wide = replace(VARIANTS["plain"], window=20)
    assert torch.equal(
        decode_attention(query, cache, decode_rows(places), wide),
        decode_attention(query, cache, decode_rows(places), VARIANTS["plain"]),
    )
