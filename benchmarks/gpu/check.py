"""Comparison of every kernel with its reference in float64 or in torch, for every type."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.cases import Setting
from benchmarks.lib.partial_results import PartialResults
from loragate.kernels.attention_rows import AttentionOptions, PrefillRows
from loragate.kernels.gated import Activation
from loragate.kernels.gpu import decode_attention, gated, kv_write, prefill_attention, rms_norm, rotary
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import gathered_decode_attention
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.rotary import rotate as rotate_in_torch
from loragate.kernels.segmented_experts import ExpertTable, StackedLinear, experts_reference, stacked_reference
from loragate.kernels.segmented_lora import lora_reference
from loragate.kernels.segments import DECODE, TILINGS, Work, segments_from

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.15}
STORAGES = (None, torch.int8, torch.float8_e4m3fn)

Difference = tuple[str, Tensor, float]
"""The name of a check, the differences from the reference, and the tolerance."""


def check(setting: Setting, results: PartialResults) -> None:
    """Record the largest difference of each kernel."""
    for dtype, tolerance in TOLERANCE.items():
        for part in _PARTS:
            results.record(_name(part, dtype), partial(_largest, part(setting, dtype, tolerance)))
        print(f"{dtype}: all kernels compared with their references", flush=True)


def _largest(differences: Iterator[Difference]) -> dict[str, float]:
    """Return the largest difference by name. Raise AssertionError if any exceeds its tolerance."""
    worst: dict[str, float] = {}
    wrong: list[str] = []
    for name, difference, allowed in differences:
        off = difference.abs().max().item()
        if not off <= allowed:  # NaN is wrong too
            wrong.append(f"{name}: off by {off}, more than {allowed}")
        worst[name] = max(worst.get(name, 0.0), off)
    assert not wrong, "; ".join(wrong)
    return worst


def _lora(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    inputs, widths = setting.sizes.groups[0]
    ranks = setting.sizes.ranks
    for tiling in (DECODE,) if dtype == torch.float32 else TILINGS:
        for slots in ([0, 0, 1, 2, 2, 2], [3] * 20, [0], [1, 2] + [0] * 70):
            slots = sorted(slots)
            x = setting.numbers(len(slots), inputs, dtype=dtype)
            out = setting.numbers(len(slots), sum(widths), dtype=dtype)
            weights = {s: setting.weights(inputs, widths, ranks[s % len(ranks)], dtype) for s in set(slots)}
            expected = lora_reference(out, x, slots, weights)
            add_segments(
                setting.table(inputs, widths, weights),
                out,
                x,
                (Work.from_segments(segments_from(slots), setting.device, tiling),),
            )
            yield f"lora, tiles of {tiling.rows}", out.double() - expected, tolerance * expected.abs().max().item()


def _experts(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    """Check up and down projections in both layouts, with adapters on all experts."""
    mixture, ranks = setting.sizes.mixture, setting.sizes.ranks
    for transposed in (False, True):
        for inputs, outputs in ((mixture.hidden, 2 * mixture.intermediate), (mixture.intermediate, mixture.hidden)):
            weights = setting.experts(inputs, outputs, dtype, transposed)
            biases = setting.numbers(mixture.experts, outputs, dtype=dtype) if transposed else None
            linear, adapters = StackedLinear(weights, biases), ExpertTable()
            for slot, rank in enumerate(ranks):
                adapters.put(slot, setting.expert_factors(inputs, outputs, rank, dtype))
            for slots in ([0], [-1, -1, 0, 1, 1], [-1] + [1] * 20, [0] * 80):
                chosen = setting.chosen(len(slots))
                routing = linear.route(chosen, segments_from(slots))
                x = setting.numbers(len(slots), inputs, dtype=dtype)[routing.rows]
                out = linear(x, routing)
                adapters.add(out, x, routing)
                experts = chosen.reshape(-1)[routing.order].tolist()
                owners = [slots[row] for row in routing.rows.tolist()]
                base = stacked_reference(weights, biases, x, experts)
                expected = experts_reference(base, x, experts, owners, adapters.weights)
                name = "experts, inputs first" if transposed else "experts, outputs first"
                yield name, out.double() - expected, tolerance * expected.abs().max().item()


def _decode(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    for name, options in _options(setting).items():
        for storage in STORAGES:
            cache, places = setting.cache(3, 100, dtype, storage)
            rows = setting.decode_rows(places)
            query = setting.numbers(setting.sizes.heads, 3, setting.sizes.head_dim, dtype=dtype)
            out = decode_attention.decode_attention(query, cache, rows, options)
            expected = gathered_decode_attention(query.double(), _doubles(cache), rows, options)
            yield f"decode attention, {name}, {_storage_name(storage)}", out.double() - expected, tolerance


def _prefill(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    """Check a chunk after some context against decode attention of each of its rows."""
    context, chunk = 40, 37
    for name, options in _options(setting).items():
        for storage in STORAGES:
            cache, places = setting.cache(1, context + chunk, dtype, storage)
            query = setting.numbers(setting.sizes.heads, chunk, setting.sizes.head_dim, dtype=dtype)
            out = prefill_attention.prefill_attention(query, cache, PrefillRows(0, chunk, context, places[0]), options)
            rows = setting.decode_rows(places.expand(chunk, -1))
            rows.lengths.copy_(torch.arange(context + 1, context + chunk + 1))
            expected = gathered_decode_attention(query.double(), _doubles(cache), rows, options)
            yield f"prefill attention, {name}, {_storage_name(storage)}", out.double() - expected, tolerance


def _norm(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    for kind in (RmsNorm(1e-6, rounds_first=True), RmsNorm(1e-5), RmsNorm(1e-6, shift=1.0)):
        x = setting.numbers(9, setting.sizes.hidden, dtype=dtype)
        weight = setting.numbers(setting.sizes.hidden, dtype=dtype)
        out = rms_norm.rms_norm(x, weight, kind.eps, kind.shift, kind.rounds_first)
        yield "rms norm", out.double() - kind.reference(x, weight).double(), tolerance
        added = setting.numbers(9, setting.sizes.hidden, dtype=dtype)
        both = rms_norm.add_rms_norm(x, added, weight, kind.eps, kind.shift, kind.rounds_first)
        total = x + added if setting.on_gpu else both[0]  # the interpreter truncates bfloat16
        norm = rms_norm.rms_norm(total, weight, kind.eps, kind.shift, kind.rounds_first)
        yield (
            "rms norm of a sum, against two launches",
            torch.cat(both).double() - torch.cat([total, norm]).double(),
            0.0,
        )


def _gated(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    gate, up = setting.numbers(9, 2 * setting.sizes.intermediate, dtype=dtype).chunk(2, dim=-1)
    for activation in Activation:
        expected = activation.gated(gate.double(), up.double())
        yield f"gated {activation.name.lower()}", gated.gated(gate, up, activation).double() - expected, tolerance


def _rotary(setting: Setting, dtype: torch.dtype, tolerance: float) -> Iterator[Difference]:
    for dim in (setting.sizes.head_dim, setting.sizes.head_dim // 4):
        given = setting.rotary_inputs(9, dim, dtype)
        expected = rotate_in_torch(*(x.double() for x in given))
        for out, truth in zip(rotary.rotate(*given), expected, strict=True):
            yield f"rotary, {dim}", out.double() - truth, tolerance


def _write(setting: Setting, dtype: torch.dtype, _: float) -> Iterator[Difference]:
    """Check that the stored bits are identical."""
    for storage in STORAGES:
        cache, places = setting.cache(2, 20, dtype, storage)
        twin, _ = setting.cache(2, 20, dtype, storage)
        new = [
            setting.numbers(20, setting.sizes.kv_heads, setting.sizes.head_dim, dtype=dtype).transpose(0, 1)
            for _ in range(2)
        ]
        for other, own in zip(twin.stored, cache.stored, strict=True):
            other.copy_(own)
        kv_write.write(cache, places[1], *new)
        twin.write(places[1], *new)
        different = [torch.ne(a, b).double().amax() for a, b in zip(cache.stored, twin.stored, strict=True)]
        yield f"write, {_storage_name(storage)}", torch.stack(different), 0.0


def _rotary_write(setting: Setting, dtype: torch.dtype, _: float) -> Iterator[Difference]:
    """Check that rotating and writing gives the bits of two launches."""
    sizes = setting.sizes
    for storage in STORAGES:
        (ours, places), (twin, _) = (setting.cache(2, 20, dtype, storage) for _ in range(2))
        for other, own in zip(twin.stored, ours.stored, strict=True):
            other.copy_(own)
        query, key, cos, sin = setting.rotary_inputs(20, sizes.head_dim, dtype)
        value = setting.numbers(20, sizes.kv_heads, sizes.head_dim, dtype=dtype).transpose(0, 1)
        out, turned = rotary.unfilled(query, key), rotary.rotate(query, key, cos, sin)
        rotary.rotate_and_write(out, query, key, cos, sin, ours, places[1], value)
        kv_write.write(twin, places[1], turned[1][0], value)
        pairs = zip((*out, *ours.stored), (*turned, *twin.stored), strict=True)
        different = [torch.ne(a, b).double().amax() for a, b in pairs]
        yield f"rotary and write, {_storage_name(storage)}", torch.stack(different), 0.0


def _options(setting: Setting) -> dict[str, AttentionOptions]:
    sinks = torch.linspace(-1, 2, setting.sizes.heads, device=setting.device)
    return {
        "plain": AttentionOptions(0.1),
        "window": AttentionOptions(0.1, window=40),
        "softcap and sinks": AttentionOptions(0.1, softcap=3.0, sinks=sinks),
    }


def _doubles(cache: LayerCache) -> LayerCache:
    """Return a cache with the same numbers, as read, in float64."""
    plain = LayerCache(1, 1, 1, 1, torch.float64, cache.keys.device)
    everywhere = torch.arange(cache.keys.shape[1], device=cache.keys.device)
    plain.keys, plain.values = (part.double() for part in cache.gather(everywhere))
    return plain


def _storage_name(storage: torch.dtype | None) -> str:
    return "plain cache" if storage is None else str(storage).removeprefix("torch.")


Part = Callable[[Setting, torch.dtype, float], Iterator[Difference]]

_PARTS: tuple[Part, ...] = (_lora, _experts, _decode, _prefill, _norm, _gated, _rotary, _write, _rotary_write)


def _name(part: Part, dtype: torch.dtype) -> str:
    return f"{part.__name__[1:]} {dtype}".replace("torch.", "")


NAMES = tuple(_name(part, dtype) for dtype in TOLERANCE for part in _PARTS)
"""All cases."""
