"""What kernels take, beside torch and beside the memory's speed.

A single launch of a few microseconds is as much a measure of the launch as of the kernel, and its weights lie in the L2
cache the second time. So the figure that counts is that of a whole decode step's LoRA, all layers, replayed as a CUDA
graph over weights of many times the cache; single launches are reported beside it, over several sets of weights by
turns. Times are the device's own, between two events, behind so much other work that the host has launched what is
timed by then. What a launch moves and computes stands beside its time, for `roofline.py`.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu.cases import PAGE, Setting
from benchmarks.lib.partial_results import Findings
from loragate.kernels.attention_rows import AttentionOptions
from loragate.kernels.gated import Activation
from loragate.kernels.gpu import decode_attention, gated, kv_write, prefill_attention, rms_norm, rotary
from loragate.kernels.gpu.grouped_experts import FLOATS, HALF_TILINGS, grouped_linear
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.paged_attention import gathered_decode_attention, tile_rows
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.rotary import rotate as turned_in_torch
from loragate.kernels.segmented_experts import ExpertTable, StackedLinear, route
from loragate.kernels.segmented_lora import add_segment_by_segment
from loragate.kernels.segments import DECODE_TILINGS, PREFILL_TILINGS, Tiling, Work, segments_from

Figures = dict[str, Any]

_IN_A_GRAPH = 20
_CACHES = 4  # so many times the L2 cache lie between two readings of the same weights
_MOST_SETS = 64
_AHEAD = 1_000_000  # cycles that the device is busy for, half a millisecond, while the host launches what is timed


@torch.inference_mode()
def measure(setting: Setting, found: Findings) -> None:
    sizes = setting.sizes
    speed = bandwidth(setting)
    found.keep("bandwidth_gb_s", lambda: round(speed / 1e9, 1))
    print(f"a copy reads and writes {speed / 1e9:.0f} GB/s", flush=True)
    found.keep("matmul_tflop_s", lambda: _multiplied(setting))
    found.keep("lora_of_a_decode_step", lambda: _step(setting, speed))
    for rank in sizes.ranks:
        found.extend("lora_of_a_prefill", f"rank {rank}", lambda rank=rank: _prefill_lora(setting, rank, speed))
    for case in sizes.decodes:
        found.extend("decode_attention", f"{case}", lambda case=case: _decode(setting, *case, speed))
    found.keep("prefill_attention", lambda: _prefill(setting, speed))
    for name, part in (("rms_norm", _norm), ("gated", _gated), ("rotary", _rotary), ("write", _write)):
        found.keep(name, partial(part, setting, speed))
    for rows in (*sizes.rows, sizes.prefill_rows):
        found.extend("experts", f"{rows} rows", lambda rows=rows: _experts(setting, rows, speed))
    for rank, rows, popularity in product(sizes.ranks, sizes.rows, ("distinct", "identical")):
        slots = list(range(rows)) if popularity == "distinct" else [0] * rows
        launch = partial(_launch, setting, rank, popularity, slots, speed)
        found.extend("lora_launches", f"rank {rank}, {rows} rows, {popularity}", launch)


def _step(setting: Setting, bandwidth: float) -> list[Figures]:
    """The LoRA of all fused linears of all layers, for as many rows of as many adapters of rank 16, and of a few."""
    sizes, dtype = setting.sizes, setting.dtype
    rows = sizes.adapters
    tables, reading = [], 0
    for _ in range(sizes.layers):
        for inputs, widths in sizes.groups:
            weights = {slot: setting.weights(inputs, widths, 16, dtype) for slot in range(rows)}
            reading += sum(t.nbytes for w in weights.values() for t in w.tensors)
            x, out = setting.numbers(rows, inputs, dtype=dtype), setting.numbers(rows, sum(widths), dtype=dtype)
            tables.append((setting.table(inputs, widths, weights), weights, x, out))
    found = []
    for adapters, tiling in product(sorted({rows, min(4, rows)}, reverse=True), DECODE_TILINGS):
        segments = segments_from(sorted(row % adapters for row in range(rows)))
        work = (Work.from_segments(segments, setting.device, tiling),)

        def step(work: tuple[Work, ...] = work) -> None:
            for table, _, x, out in tables:
                add_segments(table, out, x, work)

        us, read = _microseconds(setting, _replayed(setting, step)), reading * adapters // rows
        found.append(
            {
                "rows": rows,
                "adapters": adapters,
                "gigabytes": round(read / 1e9, 3),
                "tiling": tiling._asdict(),
                "ms": round(us / 1e3, 3),
            }
            | _reached(us, read, 2 * rows * (reading // rows) // dtype.itemsize, bandwidth)
        )
        print(found[-1], flush=True)
    return found


def _prefill_lora(setting: Setting, rank: int, bandwidth: float) -> Figures:
    """q, k and v of one prompt, beside dense products of the same shape."""
    sizes, dtype = setting.sizes, setting.dtype
    inputs, widths = sizes.groups[0]
    rows = sizes.prefill_rows
    x, out = setting.numbers(rows, inputs, dtype=dtype), setting.numbers(rows, sum(widths), dtype=dtype)
    weights = {0: setting.weights(inputs, widths, rank, dtype)}
    table = setting.table(inputs, widths, weights)
    a, b = weights[0].a.T.contiguous(), setting.numbers(rank, sum(widths), dtype=dtype)
    tilings = PREFILL_TILINGS if dtype != torch.float32 else DECODE_TILINGS
    works = [(Work.from_segments(segments_from([0] * rows), setting.device, tiling),) for tiling in tilings]
    us, tiling = min((_in_graph(setting, lambda w=w: add_segments(table, out, x, w)), w[0].tiling) for w in works)
    dense = _microseconds(setting, lambda: torch.mm(torch.mm(x, a)[:, :rank], b))
    figures = {"rank": rank, "rows": rows, "tiling": tiling._asdict(), "dense_us": dense}
    moved = sum(t.nbytes for t in (*weights[0].tensors, x, out, out))
    figures |= _reached(us, moved, 2 * rows * sum(t.numel() for t in weights[0].tensors), bandwidth)
    print(figures, flush=True)
    return figures | {"over_dense": round(us / dense, 2)}


def _launch(setting: Setting, rank: int, popularity: str, slots: list[int], bandwidth: float) -> Figures:
    dtype, segments = setting.dtype, segments_from(slots)
    inputs, widths = setting.sizes.groups[0]
    x, out = setting.numbers(len(slots), inputs, dtype=dtype), setting.numbers(len(slots), sum(widths), dtype=dtype)
    weights = {slot: setting.weights(inputs, widths, rank, dtype) for slot in set(slots)}
    read = sum(t.nbytes for w in weights.values() for t in w.tensors)
    sets = [weights] + [
        {slot: setting.weights(inputs, widths, rank, dtype) for slot in weights}
        for _ in range(_copies(setting, read) - 1)
    ]
    tables = [setting.table(inputs, widths, each) for each in sets]
    works = [(Work.from_segments(segments, setting.device, tiling),) for tiling in DECODE_TILINGS]
    best: tuple[float, Tiling] = min(
        (_in_graph(setting, *(lambda t=t, w=w: add_segments(t, out, x, w) for t in tables)), w[0].tiling) for w in works
    )
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
        "tiling": best[1]._asdict(),
        "torch_us": _microseconds(setting, lambda: add_segment_by_segment(out, x, segments, weights)),
        "bmm_us": _microseconds(setting, bmm),
    }
    figures |= _reached(best[0], read, 2 * len(slots) * sum(t.numel() for t in weights[0].tensors), bandwidth)
    print(figures, flush=True)
    return figures


def _experts(setting: Setting, rows: int, bandwidth: float) -> Figures:
    """The projection up of one mixture: the work list of a layer, the base model's products by tiling, beside torch's
    loop over the experts and beside its own grouped product, and the adapters' of rank 16, one or one a row."""
    mixture, dtype = setting.sizes.mixture, setting.dtype
    inputs, outputs = mixture.hidden, 2 * mixture.intermediate
    weights, chosen = setting.experts(inputs, outputs, dtype), setting.chosen(rows)
    linear, segments = StackedLinear(weights, None), segments_from([0] * rows)
    routing = linear.route(chosen, segments)
    assert routing.tiles is not None
    tiles = routing.tiles.by_expert
    x = setting.numbers(rows, inputs, dtype=dtype)[routing.rows]
    tilings = HALF_TILINGS if dtype != torch.float32 else (FLOATS,)
    us, tiling = min((_in_graph(setting, lambda t=t: grouped_linear(x, weights, None, tiles, t)), t) for t in tilings)
    on_host = route(chosen, ())
    read = torch.unique(chosen).numel() * inputs * outputs * dtype.itemsize
    figures = {
        "rows": rows,
        "experts_reached": torch.unique(chosen).numel(),
        "tiling": tiling._asdict(),
        **_reached(us, read, 2 * x.shape[0] * inputs * outputs, bandwidth),
        "torch_us": _microseconds(
            setting, lambda: torch.cat([F.linear(x[r.start : r.stop], weights[r.expert]) for r in on_host.runs])
        ),
        "torch_grouped_us": _torch_grouped(setting, x, weights, chosen),
        "work_list_us": _microseconds(setting, lambda: linear.route(chosen, segments)),
    }
    for name, adapters in (("one_adapter_us", 1), ("distinct_adapters_us", min(rows, setting.sizes.expert_adapters))):
        table = ExpertTable()
        for slot in range(adapters):
            table.put(slot, setting.expert_factors(inputs, outputs, 16, dtype))
        routed = linear.route(chosen, segments_from(sorted(row % adapters for row in range(rows))))
        out = setting.numbers(x.shape[0], outputs, dtype=dtype)
        figures[name] = _microseconds(setting, lambda t=table, o=out, r=routed: t.add(o, x, r))
    print(figures, flush=True)
    return figures


def _torch_grouped(setting: Setting, x: Tensor, weights: Tensor, chosen: Tensor) -> float | None:
    """torch's own, which is there for bfloat16 on a GPU."""
    if not setting.on_gpu or not hasattr(F, "grouped_mm"):
        return None
    ends = torch.bincount(chosen.reshape(-1), minlength=weights.shape[0]).cumsum(0).int()
    try:
        return _microseconds(setting, lambda: F.grouped_mm(x, weights.transpose(1, 2), offs=ends))
    except RuntimeError as error:  # which shapes it takes differs from one version to the next
        print(f"torch's grouped product: {error}", flush=True)
        return None


def _decode(setting: Setting, sequences: int, longest: int, bandwidth: float) -> list[Figures]:
    sizes, found = setting.sizes, []
    options = AttentionOptions(sizes.head_dim**-0.5)
    query = setting.numbers(sizes.heads, sequences, sizes.head_dim, dtype=setting.dtype)
    queries = query.transpose(0, 1).contiguous()
    out = torch.empty_like(queries)
    for storage in (None, torch.int8, torch.float8_e4m3fn):
        itemsize = (storage or setting.dtype).itemsize
        read = 2 * sequences * longest * sizes.kv_heads * sizes.head_dim * itemsize
        caches = [setting.cache(sequences, longest, setting.dtype, storage) for _ in range(_copies(setting, read))]
        each = [(cache, _pages(places), setting.decode_rows(places).lengths) for cache, places in caches]
        ours = _in_graph(
            setting,
            *(
                lambda c=c, t=t, n=n: decode_attention.attend_into(out, queries, c, t, n, PAGE, options)
                for c, t, n in each
            ),
        )
        cache, rows = caches[0][0], setting.decode_rows(caches[0][1])
        figures = {
            "sequences": sequences,
            "length": longest,
            "sets": len(caches),
            "kept_as": str(cache.keys.dtype).removeprefix("torch."),
            **_reached(ours, read, 4 * sequences * longest * sizes.heads * sizes.head_dim, bandwidth),
            "torch_us": _microseconds(setting, lambda c=cache, r=rows: gathered_decode_attention(query, c, r, options)),
        }
        print(figures, flush=True)
        found.append(figures)
    return found


def _prefill(setting: Setting, bandwidth: float) -> Figures:
    """One whole prompt, beside torch's attention over keys and values that lie together."""
    sizes, dtype = setting.sizes, setting.dtype
    chunk = sizes.prefill_rows
    cache, places = setting.cache(1, chunk, dtype)
    query = setting.numbers(sizes.heads, chunk, sizes.head_dim, dtype=dtype)
    options, size = AttentionOptions(sizes.head_dim**-0.5), tile_rows(cache, dtype)
    keys, values = (part[None].contiguous() for part in cache.gather(places[0]))
    tiles = [(row, min(size, chunk - row), row, 0) for row in range(0, chunk, size)]
    queries, where = query.transpose(0, 1).contiguous(), torch.tensor(tiles, device=setting.device)
    out, tables = torch.empty_like(queries), _pages(places)
    us = _in_graph(
        setting,
        lambda: prefill_attention.attend_into(out, queries, cache, tables, where, PAGE, size, options),
    )
    moved = 2 * query.nbytes + keys.nbytes + values.nbytes
    return {
        "tokens": chunk,
        **_reached(us, moved, 2 * sizes.heads * sizes.head_dim * chunk * (chunk + 1), bandwidth),
        "torch_us": _microseconds(
            setting, lambda: F.scaled_dot_product_attention(query[None], keys, values, is_causal=True, enable_gqa=True)
        ),
    }


def _pages(places: Tensor) -> Tensor:
    """The pages of sequences, given the places of their tokens [sequences, longest]."""
    return (places[:, ::PAGE] // PAGE).contiguous()


def _norm(setting: Setting, bandwidth: float) -> Figures:
    rows, kind = max(setting.sizes.rows), RmsNorm(1e-6, rounds_first=True)
    x = setting.numbers(rows, setting.sizes.hidden, dtype=setting.dtype)
    weight = setting.numbers(setting.sizes.hidden, dtype=setting.dtype)
    us = _in_graph(setting, lambda: rms_norm.rms_norm(x, weight, kind.eps, kind.shift, kind.rounds_first))
    return {
        "rows": rows,
        "torch_us": _microseconds(setting, lambda: kind.reference(x, weight)),
        **_reached(us, 2 * x.nbytes, 4 * x.numel(), bandwidth),
    }


def _gated(setting: Setting, bandwidth: float) -> Figures:
    rows = max(setting.sizes.rows)
    gate, up = setting.numbers(rows, 2 * setting.sizes.intermediate, dtype=setting.dtype).chunk(2, dim=-1)
    us = _in_graph(setting, lambda: gated.gated(gate, up, Activation.SILU))
    return {
        "rows": rows,
        "torch_us": _microseconds(setting, lambda: Activation.SILU.gated(gate, up)),
        **_reached(us, 3 * gate.numel() * gate.itemsize, 5 * gate.numel(), bandwidth),
    }


def _rotary(setting: Setting, bandwidth: float) -> Figures:
    rows = max(setting.sizes.rows)
    given = setting.turning(rows, setting.sizes.head_dim, setting.dtype)
    us = _in_graph(setting, lambda: rotary.rotate(*given))
    return {
        "rows": rows,
        "torch_us": _microseconds(setting, lambda: turned_in_torch(*given)),
        **_reached(us, 2 * sum(x.nbytes for x in given[:2]), 3 * sum(x.numel() for x in given[:2]), bandwidth),
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
                "kept_as": str(cache.keys.dtype).removeprefix("torch."),
                **_reached(
                    _in_graph(setting, lambda c=cache, t=targets: kv_write.write(c, t, *new)), moved, 0, bandwidth
                ),
                "torch_us": _microseconds(setting, lambda c=cache, t=targets: c._write(t, *new)),
            }
        )
    return found


def _replayed(setting: Setting, function: Callable[[], None]) -> Callable[[], None]:
    """As a CUDA graph, where there is a GPU."""
    if not setting.on_gpu:
        return function
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    replay: Callable[[], None] = graph.replay
    return replay


def _in_graph(setting: Setting, *functions: Callable[[], object]) -> float:
    """Microseconds of one of ours, some of them by turns, several times in one graph: what launching it costs is not in
    it."""
    times = max(_IN_A_GRAPH, len(functions)) if setting.on_gpu else 1

    def several() -> None:
        for turn in range(times):
            functions[turn % len(functions)]()

    return round(_microseconds(setting, _replayed(setting, several)) / times, 2)


def _copies(setting: Setting, size: int) -> int:
    """How many sets of so many bytes it takes, by turns, that none is found in the L2 cache; some tens at most."""
    if not setting.on_gpu:
        return 1
    cache: int = torch.cuda.get_device_properties(setting.device).L2_cache_size
    return max(1, min(_MOST_SETS, -(-_CACHES * cache // size)))


def _reached(us: float, moved: int, flops: int, bandwidth: float) -> Figures:
    """A launch: its time, what it has to read and write at least, and what share of the memory's speed that is."""
    return {
        "us": us,
        "moved_bytes": moved,
        "flops": flops,
        "of_bandwidth": round(moved / (us * 1e-6) / bandwidth, 3),
    }


def _microseconds(setting: Setting, function: Callable[[], object]) -> float:
    """Median over runs, after a few to warm up."""
    runs, warm = (60, 10) if setting.on_gpu else (3, 1)
    took = [_timed(setting, function) for _ in range(runs)]
    return round(statistics.median(took[warm:]), 1)


def _timed(setting: Setting, function: Callable[[], object]) -> float:
    """Microseconds of the device, or of the host where there is none."""
    if not setting.on_gpu:
        began = time.perf_counter()
        function()
        return 1e6 * (time.perf_counter() - began)
    began_at, ended_at = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_AHEAD)
    began_at.record()
    function()
    ended_at.record()
    ended_at.synchronize()
    milliseconds: float = began_at.elapsed_time(ended_at)
    return 1e3 * milliseconds


def _multiplied(setting: Setting) -> float:
    """TFLOP/s of torch's product of two large matrices."""
    side = setting.sizes.prefill_rows * 8
    a, b = (setting.numbers(side, side, dtype=setting.dtype) for _ in range(2))
    return round(2 * side**3 / _microseconds(setting, lambda: torch.mm(a, b)) / 1e6, 2)


def bandwidth(setting: Setting) -> float:
    """Bytes a second that are read and written by a large copy."""
    source = torch.ones(setting.sizes.copied_bytes, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (_microseconds(setting, lambda: target.copy_(source)) * 1e-6)
