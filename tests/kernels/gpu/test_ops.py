"""torch.compile accepts every kernel: there are no graph breaks, and declared shapes and mutations are right."""

import sys
from collections.abc import Callable

import pytest
import torch
from attention import DIM, HEADS, KV_HEADS, PLACES, filled_cache, options_on
from torch import Tensor

from loragate.kernels import gpu
from loragate.kernels.attention_rows import DecodeRows, PrefillRows
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.gated import Activation
from loragate.kernels.gpu import gated as gpu_gated
from loragate.kernels.gpu import quantize_rows
from loragate.kernels.gpu import rms_norm as gpu_rms_norm
from loragate.kernels.gpu.decode_attention import decode_attention
from loragate.kernels.gpu.gated import gated
from loragate.kernels.gpu.grouped_experts import ExpertSlots, grouped_linear, route_on_device, tiling_for
from loragate.kernels.gpu.kv_write import write
from loragate.kernels.gpu.prefill_attention import prefill_attention
from loragate.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from loragate.kernels.gpu.rotary import rotate, rotate_and_write, unfilled
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.gpu.slot_tables import SlotTable
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.paged_attention import write_kv
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.segments import divide, segments_from

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def device_memory() -> None:
    """Simulates nothing: torch.compile does not trace the mode that would."""


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile as for Inductor, functionalized, and run it eagerly."""
    result: Callable[..., Tensor] = torch.compile(function, fullgraph=True, backend="aot_eager")
    return result


def cache_of(storage: torch.dtype | None) -> tuple[LayerCache, Tensor]:
    _, (places,), (keys,), (values,) = filled_cache([40])
    if storage is None:
        cache = LayerCache(PLACES, KV_HEADS, DIM, DIM, torch.float32, DEVICE)
    else:
        cache = QuantizedLayerCache(PLACES, KV_HEADS, DIM, DIM, torch.float32, DEVICE, storage)
    write_kv(cache, places.to(DEVICE), keys.to(DEVICE), values.to(DEVICE))
    return cache, places.to(DEVICE)


def test_lora() -> None:
    table = SlotTable((8, 8), 16, torch.float32, DEVICE)
    weights = LoraWeights(numbers(6, 16), (Expand(0, 4, 0, numbers(4, 8)), Expand(4, 6, 8, numbers(2, 8))))
    table.put(0, weights)
    work = divide(segments_from([0, 0, -1]), DEVICE, torch.float32)

    def add(x: Tensor) -> Tensor:
        out = x[:, :16] * 2
        add_segments(table, out, x, work)
        return out + 1

    x = numbers(3, 16)
    assert torch.equal(compiled(add)(x), add(x))


@pytest.mark.parametrize("biased", [False, True])
def test_experts(biased: bool) -> None:
    slots, weights, chosen = ExpertSlots(3, 16, 8, numbers(1)), numbers(3, 8, 16), torch.tensor([[0], [2], [2]])
    factors = ExpertFactors(numbers(3, 4, 16), numbers(3, 4, 8))
    slots.put(0, factors)
    _, tiles = route_on_device(chosen.to(DEVICE), segments_from([-1, 0, 0]), 3, tiling_for(torch.float32).rows)

    biases = numbers(3, 8) if biased else None

    def output(x: Tensor) -> Tensor:
        y = grouped_linear(x * 2, weights, biases, tiles.by_expert)
        slots.add(y, x, tiles.by_adapter)
        return y + 1

    x = numbers(3, 16)
    assert torch.equal(compiled(output)(x), output(x))


@pytest.mark.parametrize("storage", [None, torch.int8, torch.float8_e4m3fn], ids=str)
def test_attention(storage: torch.dtype | None) -> None:
    cache, places = cache_of(storage)
    rows = DecodeRows(places[None], torch.tensor([40], device=DEVICE))

    def attend(query: Tensor) -> Tensor:
        one = decode_attention(query[:, :1] * 2, cache, rows, options_on(DEVICE, "all"))
        many = prefill_attention(query, cache, PrefillRows(0, 5, 35, places), options_on(DEVICE, "plain"))
        return torch.cat([one, many], dim=1) + 1

    query = numbers(HEADS, 5, DIM)
    assert torch.equal(compiled(attend)(query), attend(query))


@pytest.mark.parametrize("storage", [None, torch.int8], ids=str)
def test_writing(storage: torch.dtype | None) -> None:
    ours, _ = cache_of(storage)
    expected, _ = cache_of(storage)
    targets = torch.tensor([250, 3], device=DEVICE)

    def store(cache: LayerCache, new: Tensor) -> Tensor:
        write(cache, targets, new * 2, new)
        return new

    new = numbers(KV_HEADS, 2, DIM)
    compiled(store)(ours, new)
    store(expected, new)
    for part, other in zip(ours.stored, expected.stored, strict=True):
        assert torch.equal(part, other)


def test_norm() -> None:
    kind, weight = RmsNorm(1e-6), numbers(24)

    def norm(x: Tensor) -> Tensor:
        return rms_norm(x * 2, weight, kind.eps, kind.shift, kind.rounds_first) + 1

    assert torch.equal(compiled(norm)(numbers(2, 3, 24)), norm(numbers(2, 3, 24)))


def test_norm_of_a_sum() -> None:
    kind, weight, added = RmsNorm(1e-6), numbers(24), numbers(2, 3, 24)

    def norm(x: Tensor) -> Tensor:
        total, out = add_rms_norm(x * 2, added, weight, kind.eps, kind.shift, kind.rounds_first)
        return total + out

    assert torch.equal(compiled(norm)(numbers(2, 3, 24)), norm(numbers(2, 3, 24)))


def test_gate() -> None:
    def gate(x: Tensor) -> Tensor:
        return gated(x * 2, x, Activation.SILU) + 1

    assert torch.equal(compiled(gate)(numbers(1, 3, 24)), gate(numbers(1, 3, 24)))


def test_what_quantizes_rows() -> None:
    """The operators, whose results become an attribute of a tensor in eager code."""
    weight, added = numbers(24), numbers(2, 3, 24)

    def rows_of(x: Tensor) -> Tensor:
        norm, *of_norm = gpu_rms_norm._quantized_norm(x * 2, weight, 1e-6, 0.0, True)
        total, _, *of_sum = gpu_rms_norm._add_quantized_norm(x * 2, added, weight, 1e-6, 0.0, True)
        _, *of_gate = gpu_gated._quantized_gated(x, norm, Activation.SILU.value)
        rows = of_norm, of_sum, of_gate, quantize_rows._quantize(total)
        return torch.stack([scales * stored.float() for stored, scales in rows])

    assert torch.equal(compiled(rows_of)(numbers(2, 3, 24)), rows_of(numbers(2, 3, 24)))


def test_rotary() -> None:
    key, angles = numbers(1, 1, 3, 8), numbers(1, 3, 8)

    def turn(query: Tensor) -> Tensor:
        queries, keys = rotate(query * 2, key, angles, angles)
        return queries + keys

    assert torch.equal(compiled(turn)(numbers(1, 2, 3, 8)), turn(numbers(1, 2, 3, 8)))


@pytest.mark.parametrize("storage", [None, torch.int8], ids=str)
def test_rotary_with_the_write(storage: torch.dtype | None) -> None:
    (ours, _), (expected, _) = cache_of(storage), cache_of(storage)
    key, angles, values = numbers(1, KV_HEADS, 2, DIM), numbers(1, 2, DIM), numbers(KV_HEADS, 2, DIM)
    targets = torch.tensor([250, 3], device=DEVICE)

    def turn(cache: LayerCache, query: Tensor) -> Tensor:
        out = unfilled(query, key)
        rotate_and_write(out, query * 2, key, angles, angles, cache, targets, values)
        return out[0] + out[1].sum()

    query = numbers(1, HEADS, 2, DIM)
    assert torch.equal(compiled(turn)(ours, query), turn(expected, query))
    for part, other in zip(ours.stored, expected.stored, strict=True):
        assert torch.equal(part, other)


def test_without_triton_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # it cannot be imported, and `find_spec` does not find it
    assert not gpu.available.__wrapped__()
