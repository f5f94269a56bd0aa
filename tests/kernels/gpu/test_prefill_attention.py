"""Prefill attention in Triton against plain attention in float64: in the interpreter, or on a GPU."""

import pytest
import torch
from attention import DIM, HEADS, KV_HEADS, PLACES, VARIANTS, filled_cache, options_on, reference
from simulated_memory import DEVICE
from thinned import thinned

from loragate.kernels.attention_rows import PrefillRows
from loragate.kernels.gpu import prefill_attention as kernels
from loragate.kernels.gpu.prefill_attention import prefill_attention
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tiles small, so that short chunks have several."""
    monkeypatch.setattr(kernels, "QUERIES", 16)


def attend(query: torch.Tensor, cache: LayerCache, places: torch.Tensor, context: int, variant: str) -> torch.Tensor:
    rows = PrefillRows(0, query.shape[1], context, places.to(DEVICE))
    return prefill_attention(query.to(DEVICE), cache, rows, options_on(DEVICE, variant)).cpu()


def on_device(cache: LayerCache, dtype: torch.dtype) -> LayerCache:
    copy = LayerCache(PLACES, KV_HEADS, DIM, DIM, dtype, DEVICE)
    copy.keys.copy_(cache.keys)
    copy.values.copy_(cache.values)
    return copy


@pytest.mark.parametrize("dtype", thinned(TOLERANCE, fast={torch.float32, torch.bfloat16}), ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("context", "chunk"), thinned([(0, 1), (0, 12), (0, 40), (20, 33), (61, 3)], fast={(0, 1), (20, 33)})
)
def test_equals_plain_attention(variant: str, context: int, chunk: int, dtype: torch.dtype) -> None:
    cache, (places,), (keys,), (values,) = filled_cache([context + chunk])
    query = torch.randn(HEADS, chunk, DIM, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = attend(query, on_device(cache, dtype), places, context, variant)
    assert out.dtype == dtype
    expected = reference(query, keys.to(dtype), values.to(dtype), VARIANTS[variant])
    assert torch.allclose(out.double(), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("variant", thinned(VARIANTS, fast={"window", "all"}))
def test_any_split_of_the_prompt_computes_the_same(variant: str) -> None:
    """Bitwise: how much of a step's budget others' prompts leave must not show in the output."""
    cache, (places,), _, _ = filled_cache([50])
    cache = on_device(cache, torch.float32)
    query = torch.randn(HEADS, 50, DIM, generator=torch.Generator().manual_seed(1))
    whole = attend(query, cache, places, 0, variant)
    for begin, end in ((0, 7), (7, 30), (30, 31), (31, 50)):
        part = attend(query[:, begin:end], cache, places[:end], begin, variant)
        assert torch.equal(part, whole[:, begin:end]), (begin, end)


@pytest.mark.parametrize("storage", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("variant", thinned(VARIANTS, fast={"plain", "all"}))
def test_eight_bits_are_read_as_torch_reads_them(variant: str, storage: torch.dtype) -> None:
    _, (places,), (keys,), (values,) = filled_cache([61])
    small = QuantizedLayerCache(PLACES, KV_HEADS, DIM, DIM, torch.float32, DEVICE, storage)
    small.write(places.to(DEVICE), keys.to(DEVICE), values.to(DEVICE))
    query = torch.randn(HEADS, 21, DIM, generator=torch.Generator().manual_seed(1))
    out = attend(query, small, places, 40, variant)
    stored = (part.cpu() for part in small.gather(places.to(DEVICE)))
    assert torch.allclose(out.double(), reference(query, *stored, VARIANTS[variant]), atol=1e-5)
