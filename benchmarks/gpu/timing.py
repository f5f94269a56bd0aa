"""Times of the kernels, compared with torch and with the memory bandwidth.

A single launch of a few microseconds measures the launch as much as the kernel, and its weights are in the L2 cache the
second time. The figure that counts is therefore the LoRA of a whole decode step, all layers, replayed as a CUDA graph
over weights many times larger than the cache; single launches alternate between several sets of weights. Times are the
device's own, between two events, after enough other work that the host has launched the timed kernels by then. The
bytes and operations of each launch are reported with its time, for `roofline.py`.
"""

from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu.attention_timing import time_decode, time_prefill
from benchmarks.gpu.cases import Setting
from benchmarks.gpu.stopwatch import (
    Figures,
    bandwidth,
    copies,
    graph_microseconds,
    in_cache,
    launch_figures,
    matmul_speed,
    microseconds,
    replayed,
)
from benchmarks.lib.partial_results import PartialResults
from loragate.kernels.gated import Activation
from loragate.kernels.gpu import gated, kv_write, launches_dependents, rms_norm, rotary
from loragate.kernels.gpu.grouped_experts import FLOATS, HALF_TILINGS, grouped_linear
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.rotary import rotate as rotate_in_torch
from loragate.kernels.segmented_experts import ExpertTable, StackedLinear, route
from loragate.kernels.segmented_lora import add_segment_by_segment
from loragate.kernels.segments import DECODE_TILINGS, PREFILL_TILINGS, Tiling, Work, segments_from


@torch.inference_mode()
def measure(setting: Setting, results: PartialResults) -> None:
    sizes = setting.sizes
    speed = bandwidth(setting)
    results.record("bandwidth_gb_s", lambda: round(speed / 1e9, 1))
    print(f"memory bandwidth of a copy: {speed / 1e9:.0f} GB/s", flush=True)
    results.record("matmul_tflop_s", lambda: matmul_speed(setting))
    results.record("lora_of_a_decode_step", lambda: _step(setting, speed))
    for rank in sizes.ranks:
        results.extend("lora_of_a_prefill", f"rank {rank}", lambda rank=rank: _prefill_lora(setting, rank, speed))
    for case in sizes.decodes:
        results.extend("decode_attention", f"{case}", lambda case=case: time_decode(setting, *case, speed))
    results.record("prefill_attention", lambda: time_prefill(setting, speed))
    for name, part in (("rms_norm", _norm), ("gated", _gated), ("rotary", _rotary), ("write", _write)):
        results.record(name, partial(part, setting, speed))
    for rows in (*sizes.rows, sizes.prefill_rows):
        results.extend("experts", f"{rows} rows", lambda rows=rows: _experts(setting, rows, speed))
    for rank, rows, popularity in product(sizes.ranks, sizes.rows, ("distinct", "identical")):
        slots = list(range(rows)) if popularity == "distinct" else [0] * rows
        launch = partial(_launch, setting, rank, popularity, slots, speed)
        results.extend("lora_launches", f"rank {rank}, {rows} rows, {popularity}", launch)


def _step(setting: Setting, bandwidth: float) -> list[Figures]:
    """Time the LoRA of all fused linears of all layers at rank 16, with one adapter per row and with few adapters.

    As in a served step, the head's table is reserved and no adapter is on it. The tiling that is served comes first.
    `dependent_ms` is with expand launched while shrink ends, on a GPU that can do so.
    """
    sizes, dtype = setting.sizes, setting.dtype
    rows = sizes.adapters
    tables, reading = [], 0
    for _ in range(sizes.layers):
        for inputs, widths in sizes.groups:
            weights = {slot: setting.weights(inputs, widths, 16, dtype) for slot in range(rows)}
            reading += sum(t.nbytes for w in weights.values() for t in w.tensors)
            x, out = setting.numbers(rows, inputs, dtype=dtype), setting.numbers(rows, sum(widths), dtype=dtype)
            tables.append((setting.table(inputs, widths, weights), weights, x, out))
    x, out = (setting.numbers(rows, width, dtype=dtype) for width in (sizes.hidden, sizes.vocabulary))
    tables.append((setting.table(sizes.hidden, (sizes.vocabulary,), {}), {}, x, out))
    found = []
    for adapters, tiling in product(sorted({rows, min(4, rows)}, reverse=True), DECODE_TILINGS):
        segments = segments_from(sorted(row % adapters for row in range(rows)))
        work = (Work.from_segments(segments, setting.device, tiling),)

        def step(work: tuple[Work, ...] = work, dependent: bool = False) -> None:
            for table, _, x, out in tables:
                add_segments(table, out, x, work, dependent=dependent)

        us, read = microseconds(setting, replayed(setting, step)), reading * adapters // rows
        early = partial(step, dependent=True) if launches_dependents(setting.device) else None
        found.append(
            {
                "rows": rows,
                "adapters": adapters,
                "gigabytes": round(read / 1e9, 3),
                "tiling": tiling._asdict(),
                "ms": round(us / 1e3, 3),
                "dependent_ms": early and round(microseconds(setting, replayed(setting, early)) / 1e3, 3),
            }
            | launch_figures(us, read, 2 * rows * (reading // rows) // dtype.itemsize, bandwidth)
        )
        print(found[-1], flush=True)
    return found


def _prefill_lora(setting: Setting, rank: int, bandwidth: float) -> Figures:
    """Time q, k and v of one prompt by our kernels, by matmuls of each target, and dense products of the same shape."""
    sizes, dtype = setting.sizes, setting.dtype
    inputs, widths = sizes.groups[0]
    rows = sizes.prefill_rows
    x, out = setting.numbers(rows, inputs, dtype=dtype), setting.numbers(rows, sum(widths), dtype=dtype)
    weights = {0: setting.weights(inputs, widths, rank, dtype)}
    table = setting.table(inputs, widths, weights)
    a, b = weights[0].a.T.contiguous(), setting.numbers(rank, sum(widths), dtype=dtype)
    tilings = PREFILL_TILINGS if dtype != torch.float32 else DECODE_TILINGS
    segments = segments_from([0] * rows)
    works = [(Work.from_segments(segments, setting.device, tiling),) for tiling in tilings]
    times = [(graph_microseconds(setting, lambda w=w: add_segments(table, out, x, w)), w[0].tiling) for w in works]
    us = times[0][0]
    dense = graph_microseconds(setting, lambda: out.addmm_(torch.mm(x, a)[:, :rank], b))  # reads and writes, as ours
    matmuls = graph_microseconds(setting, lambda: add_segment_by_segment(out, x, segments, weights))
    figures = {"rank": rank, "rows": rows, **_tilings(times), "matmuls_us": matmuls, "dense_us": dense}
    moved = sum(t.nbytes for t in (*weights[0].tensors, x, out, out))
    figures |= launch_figures(us, moved, 2 * rows * sum(t.numel() for t in weights[0].tensors), bandwidth)
    print(figures, flush=True)
    return figures | {"over_dense": round(us / dense, 2), "matmuls_over_dense": round(matmuls / dense, 2)}


def _tilings(times: list[tuple[float, Tiling]]) -> Figures:
    """Return the tiling that is served, which is the first and the one that `us` belongs to, and the fastest."""
    us, fastest = min(times)
    return {"tiling": times[0][1]._asdict(), "fastest_tiling": fastest._asdict(), "us_with_fastest_tiling": us}


def _launch(setting: Setting, rank: int, popularity: str, slots: list[int], bandwidth: float) -> Figures:
    dtype, segments = setting.dtype, segments_from(slots)
    inputs, widths = setting.sizes.groups[0]
    x, out = setting.numbers(len(slots), inputs, dtype=dtype), setting.numbers(len(slots), sum(widths), dtype=dtype)
    weights = {slot: setting.weights(inputs, widths, rank, dtype) for slot in set(slots)}
    read = sum(t.nbytes for w in weights.values() for t in w.tensors)
    sets = [weights] + [
        {slot: setting.weights(inputs, widths, rank, dtype) for slot in weights}
        for _ in range(copies(setting, read) - 1)
    ]
    tables = [setting.table(inputs, widths, each) for each in sets]
    works = [(Work.from_segments(segments, setting.device, tiling),) for tiling in DECODE_TILINGS]
    times: list[tuple[float, Tiling]] = [
        (graph_microseconds(setting, *(lambda t=t, w=w: add_segments(t, out, x, w) for t in tables)), w[0].tiling)
        for w in works
    ]
    a = torch.stack([weights[slot].a for slot in slots]).transpose(1, 2)
    b = [torch.stack([weights[slot].expands[i].b for slot in slots]) for i in range(len(widths))]

    def bmm() -> Tensor:
        shrunk = torch.bmm(x[:, None], a).split(rank, dim=2)
        return torch.cat([torch.bmm(h, each) for h, each in zip(shrunk, b, strict=True)], dim=2)

    figures = {
        "rank": rank,
        "rows": len(slots),
        "popularity": popularity,
        "sets": len(sets),
        "in_cache": in_cache(setting, len(sets) * read),
        **_tilings(times),
        "torch_us": graph_microseconds(setting, lambda: add_segment_by_segment(out, x, segments, weights)),
        "bmm_us": graph_microseconds(setting, bmm),
    }
    figures |= launch_figures(times[0][0], read, 2 * len(slots) * sum(t.numel() for t in weights[0].tensors), bandwidth)
    print(figures, flush=True)
    return figures


def _experts(setting: Setting, rows: int, bandwidth: float) -> Figures:
    """Time the up projection of one mixture of experts.

    Measures the work list of a layer, the base model's products with the best tiling, torch's loop over the experts,
    torch's grouped product, and adapters of rank 16, one for all rows and one per row.
    """
    mixture, dtype = setting.sizes.mixture, setting.dtype
    inputs, outputs = mixture.hidden, 2 * mixture.intermediate
    weights, chosen = setting.experts(inputs, outputs, dtype), setting.chosen(rows)
    linear, segments = StackedLinear(weights, None), segments_from([0] * rows)
    routing = linear.route(chosen, segments)
    assert routing.tiles is not None
    tiles = routing.tiles.by_expert
    x = setting.numbers(rows, inputs, dtype=dtype)[routing.rows]
    tilings = HALF_TILINGS if dtype != torch.float32 else (FLOATS,)
    us, tiling = min(
        (graph_microseconds(setting, lambda t=t: grouped_linear(x, weights, None, tiles, t)), t) for t in tilings
    )
    on_host = route(chosen, ())
    read = torch.unique(chosen).numel() * inputs * outputs * dtype.itemsize
    figures = {
        "rows": rows,
        "experts_reached": torch.unique(chosen).numel(),
        "tiling": tiling._asdict(),
        **launch_figures(us, read, 2 * x.shape[0] * inputs * outputs, bandwidth),
        "torch_us": microseconds(
            setting, lambda: torch.cat([F.linear(x[r.start : r.stop], weights[r.expert]) for r in on_host.runs])
        ),
        "torch_grouped_us": _torch_grouped(setting, x, weights, chosen),
        "work_list_us": microseconds(setting, lambda: linear.route(chosen, segments)),
    }
    for name, adapters in (("one_adapter_us", 1), ("distinct_adapters_us", min(rows, setting.sizes.expert_adapters))):
        table = ExpertTable()
        for slot in range(adapters):
            table.put(slot, setting.expert_factors(inputs, outputs, 16, dtype))
        routed = linear.route(chosen, segments_from(sorted(row % adapters for row in range(rows))))
        out = setting.numbers(x.shape[0], outputs, dtype=dtype)
        figures[name] = microseconds(setting, lambda t=table, o=out, r=routed: t.add(o, x, r))
    print(figures, flush=True)
    return figures


def _torch_grouped(setting: Setting, x: Tensor, weights: Tensor, chosen: Tensor) -> float | None:
    """Return the time of torch's grouped product, which exists for bfloat16 on a GPU."""
    if not setting.on_gpu or not hasattr(F, "grouped_mm"):
        return None
    ends = torch.bincount(chosen.reshape(-1), minlength=weights.shape[0]).cumsum(0).int()
    try:
        return microseconds(setting, lambda: F.grouped_mm(x, weights.transpose(1, 2), offs=ends))
    except RuntimeError as error:  # the supported shapes differ between versions
        print(f"torch's grouped product: {error}", flush=True)
        return None


def _norm(setting: Setting, bandwidth: float) -> Figures:
    rows, kind = max(setting.sizes.rows), RmsNorm(1e-6, rounds_first=True)
    x = setting.numbers(rows, setting.sizes.hidden, dtype=setting.dtype)
    weight = setting.numbers(setting.sizes.hidden, dtype=setting.dtype)
    formula = weight, kind.eps, kind.shift, kind.rounds_first
    us = graph_microseconds(setting, lambda: rms_norm.rms_norm(x, *formula))
    return {
        "rows": rows,
        "of_a_sum_us": graph_microseconds(setting, lambda: rms_norm.add_rms_norm(x, x, *formula)),
        "torch_us": microseconds(setting, lambda: kind.reference(x, weight)),
        **launch_figures(us, 2 * x.nbytes, 4 * x.numel(), bandwidth),
    }


def _gated(setting: Setting, bandwidth: float) -> Figures:
    rows = max(setting.sizes.rows)
    gate, up = setting.numbers(rows, 2 * setting.sizes.intermediate, dtype=setting.dtype).chunk(2, dim=-1)
    us = graph_microseconds(setting, lambda: gated.gated(gate, up, Activation.SILU))
    return {
        "rows": rows,
        "torch_us": microseconds(setting, lambda: Activation.SILU.gated(gate, up)),
        **launch_figures(us, 3 * gate.numel() * gate.itemsize, 5 * gate.numel(), bandwidth),
    }


def _rotary(setting: Setting, bandwidth: float) -> Figures:
    rows = max(setting.sizes.rows)
    inputs = setting.rotary_inputs(rows, setting.sizes.head_dim, setting.dtype)
    us = graph_microseconds(setting, lambda: rotary.rotate(*inputs))
    cache, places = setting.cache(rows, 16, setting.dtype)
    out, targets = rotary.unfilled(*inputs[:2]), places[:, 0].contiguous()
    write = partial(rotary.rotate_and_write, out, *inputs, cache, targets, inputs[1][0])
    return {
        "rows": rows,
        "with_the_write_us": graph_microseconds(setting, write),
        "torch_us": microseconds(setting, lambda: rotate_in_torch(*inputs)),
        **launch_figures(us, 2 * sum(x.nbytes for x in inputs[:2]), 3 * sum(x.numel() for x in inputs[:2]), bandwidth),
    }


def _write(setting: Setting, bandwidth: float) -> list[Figures]:
    sizes, found = setting.sizes, []
    rows = max(sizes.rows)
    new = [setting.numbers(rows, sizes.kv_heads, sizes.head_dim, dtype=setting.dtype).transpose(0, 1) for _ in range(2)]
    for storage in (None, torch.int8, torch.float8_e4m3fn):
        cache, places = setting.cache(rows, 16, setting.dtype, storage)
        targets = places[:, 0].contiguous()
        moved = sum(t.nbytes + t.numel() * cache.keys.dtype.itemsize for t in new)
        found.append(
            {
                "rows": rows,
                "stored_as": str(cache.keys.dtype).removeprefix("torch."),
                **launch_figures(
                    graph_microseconds(setting, lambda c=cache, t=targets: kv_write.write(c, t, *new)),
                    moved,
                    0,
                    bandwidth,
                ),
                "torch_us": microseconds(setting, lambda c=cache, t=targets: c.write(t, *new)),
            }
        )
    return found
