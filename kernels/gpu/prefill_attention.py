"""Causal attention of one sequence's chunk over its paged context and itself, without gathering keys.

FlashAttention-2's loop (Dao, 2023, arXiv:2307.08691, algorithm 1) over vLLM's paging: a program handles some queries of
one head and iterates over the keys that any of them sees. Blocks of keys begin at fixed positions, and keys that a
query does not see leave its sums unchanged, so a query's result does not depend on how the prompt was cut into chunks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.attention import (
    CASES,
    PAGE,
    Case,
    Stored,
    block_rows,
    head_constants,
    online_softmax_step,
    places_at,
    read_cache,
    soft_cap,
)
from loragate.kernels.gpu.dot import dot
from loragate.kernels.gpu.ops import no_output, operator
from loragate.kernels.gpu.quantization import PLAIN, scaled, value_dtype
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.attention_rows import AttentionOptions, PrefillRows
    from loragate.kernels.kv_cache import LayerCache

QUERIES = 64  # maximum queries of a program
_STAGES = 2


@triton.jit(do_not_specialize=["context", "chunk", "window"])
def prefill_kernel(  # type: ignore[no-untyped-def]
    query,  # [chunk, heads, key_dim]
    keys,  # [kv_heads, places, key_dim]
    values,  # [kv_heads, places, value_dim]
    tables,  # [sequences, …]: pages
    tiles,  # [tiles, 4]: first row, rows, first position and sequence; without tiles, one chunk is cut into tiles
    key_scales,  # [kv_heads, places]
    value_scales,
    sinks,  # [heads], float32
    out,  # [chunk, heads, value_dim]
    places,
    table_stride,
    context,
    chunk,
    scale,
    softcap,
    window,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    TILED: tl.constexpr,
    SINKS: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    if TILED:
        first_row = tl.load(tiles + tile * 4).to(tl.int32)
        count = tl.load(tiles + tile * 4 + 1).to(tl.int32)
        begin = tl.load(tiles + tile * 4 + 2).to(tl.int32)
        table = tables + tl.load(tiles + tile * 4 + 3) * table_stride
    else:
        first_row = tile * QUERIES
        count = tl.minimum(chunk - first_row, QUERIES)
        begin = context + first_row
        table = tables
    KEY_DTYPE: tl.constexpr = query.dtype.element_ty
    VALUE_DTYPE: tl.constexpr = value_dtype(KEY_DTYPE, FORMAT)
    row = first_row + tl.arange(0, QUERIES)
    own = tl.arange(0, QUERIES) < count
    at = begin + tl.arange(0, QUERIES)  # positions in the sequence
    d = tl.arange(0, KEY_BLOCK)
    e = tl.arange(0, VALUE_BLOCK)
    q = tl.load(
        query + (row[:, None] * HEADS + head) * KEY_DIM + d[None, :],
        mask=own[:, None] & (d < KEY_DIM)[None, :],
        other=0.0,
    )
    highest = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((QUERIES,), dtype=tl.float32)
    total = tl.zeros((QUERIES, VALUE_BLOCK), dtype=tl.float32)
    head_keys = keys + (head // GROUP).to(tl.int64) * places * KEY_DIM
    head_values = values + (head // GROUP).to(tl.int64) * places * VALUE_DIM
    head_key_scales = key_scales + (head // GROUP).to(tl.int64) * places
    head_value_scales = value_scales + (head // GROUP).to(tl.int64) * places
    first = tl.maximum(begin - window + 1, 0) // BLOCK * BLOCK
    last = begin + count
    for start in range(first, last, BLOCK):
        position = start + tl.arange(0, BLOCK)
        there = position < last
        place = places_at(table, start, there, PAGE, BLOCK)
        k = read_cache(head_keys, place[None, :], d[:, None], there[None, :], KEY_DIM, FORMAT, KEY_DTYPE)
        scores = dot(q, k, tl.zeros((QUERIES, BLOCK), dtype=tl.float32), WIDEN)
        scores = soft_cap(scaled(scores, scale, head_key_scales, place, there, FORMAT), softcap)
        seen = (position[None, :] <= at[:, None]) & (position[None, :] > at[:, None] - window) & there[None, :]
        weights, rescale, highest, weight_sum = online_softmax_step(scores, seen, highest, weight_sum)
        weights = scaled(weights, 1.0, head_value_scales, place, there, FORMAT)
        v = read_cache(head_values, place[:, None], e[None, :], there[:, None], VALUE_DIM, FORMAT, VALUE_DTYPE)
        total = dot(weights.to(VALUE_DTYPE), v, total * rescale[:, None], WIDEN)
    if SINKS:
        sink = tl.load(sinks + head)
        higher = tl.maximum(highest, sink)
        rescale = tl.exp(highest - higher)
        weight_sum = weight_sum * rescale + tl.exp(sink - higher)
        total = total * rescale[:, None]
    weight_sum = tl.where(own, weight_sum, 1.0)  # rows after the chunk may have seen no key
    tl.store(
        out + (row[:, None] * HEADS + head) * VALUE_DIM + e[None, :],
        (total / weight_sum[:, None]).to(out.dtype.element_ty),
        mask=own[:, None] & (e < VALUE_DIM)[None, :],
    )


def prefill_attention(query: Tensor, cache: "LayerCache", rows: "PrefillRows", options: "AttentionOptions") -> Tensor:
    """Compute `paged_attention.prefill_attention`: query [heads, chunk, dim] → [heads, chunk, value_dim]."""
    heads, chunk, _ = query.shape
    out = torch.empty(chunk, heads, cache.values.shape[2], dtype=query.dtype, device=query.device)
    numbers = options.scale, options.softcap or 0.0, options.window or 0, 1, QUERIES
    places = rows.token_places[None]
    query = query.transpose(0, 1).contiguous()
    _attend(out, query, *Stored.from_cache(cache), places, None, rows.context, options.sinks, *numbers)
    return out.transpose(0, 1)


def attend_into(
    out: Tensor,
    query: Tensor,
    cache: "LayerCache",
    tables: Tensor,
    tiles: Tensor,
    page: int,
    tile_rows: int,
    options: "AttentionOptions",
) -> None:
    """Fill the rows of `out` [rows, heads, value_dim] that are in a tile, given query [rows, heads, dim].

    tiles [tiles, 4], of at most `tile_rows` rows each: first row, rows, first position and sequence, whose pages are in
    its row of `tables`.
    """
    assert query.is_contiguous()
    assert out.is_contiguous()
    assert tables.stride(1) == 1
    numbers = options.scale, options.softcap or 0.0, options.window or 0, page, tile_rows
    _attend(out, query, *Stored.from_cache(cache), tables, tiles, 0, options.sinks, *numbers)


def tile_rows(key_dim: int, value_dim: int, dtype: torch.dtype, storage: torch.dtype) -> int:
    """Return the maximum number of queries of a program for heads of these sizes and a cache of this dtype."""
    return _block(key_dim, value_dim, dtype, quantized=storage.itemsize == 1)


@operator(
    "prefill_attention(Tensor(a!) out, Tensor query, Tensor keys, Tensor values, Tensor? key_scales, "
    "Tensor? value_scales, int format, Tensor tables, Tensor? tiles, SymInt context, Tensor? sinks, float scale, "
    "float softcap, int window, int page, int tile_rows) -> ()",
    fake=no_output,
)
def _attend(
    out: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    format_: int,
    tables: Tensor,
    tiles: Tensor | None,
    context: int,
    sinks: Tensor | None,
    scale: float,
    softcap: float,
    window: int,
    page: int,
    tile_rows: int,
) -> None:
    """Launch the kernel. Without tiles, the rows are one chunk after `context` tokens."""
    chunk, heads, key_dim = query.shape
    kv_heads, places, value_dim = values.shape
    constants = _constants(heads, kv_heads, key_dim, value_dim, query.dtype, format_)
    constants["QUERIES"] = min(constants["QUERIES"], tile_rows)
    count = triton.cdiv(chunk, constants["QUERIES"]) if tiles is None else tiles.shape[0]
    unread = out  # placeholder for tensors that are not read
    prefill_kernel[(count, heads)](
        *(query, keys, values, tables, tables if tiles is None else tiles),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(unread if sinks is None else sinks.float().contiguous(), out, places, tables.stride(0), context, chunk),
        *(scale, softcap, window or tables.shape[1] * page),
        **constants,
        PAGE=page,
        TILED=tiles is not None,
        SINKS=sinks is not None,
        num_stages=_STAGES,
    )


def _constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    block = _block(key_dim, value_dim, dtype, quantized=format_ != PLAIN)
    return head_constants(heads, kv_heads, key_dim, value_dim, dtype, format_) | {"QUERIES": block, "BLOCK": block}


def _block(key_dim: int, value_dim: int, dtype: torch.dtype, *, quantized: bool) -> int:
    """Return a block size that stays in registers.

    Exact products, dequantization, and heads that do not fill a block take more registers.
    """
    ragged = any(dim != triton.next_power_of_2(dim) for dim in (key_dim, value_dim))
    takes_more = dtype == torch.float32 or quantized or ragged
    return block_rows(key_dim, value_dim, dtype.itemsize * (2 if takes_more else 1), QUERIES)


def variants() -> Iterator[Variant]:
    """Return variants for the head sizes and groups that models have, at a chunk of 512 tokens after 512.

    They cover chunks of many prompts, as in steps of fixed size, and a single chunk.
    """
    for case in CASES:
        yield _variant(case, tiled=True)
    yield _variant(CASES[0], tiled=False)


def _variant(case: Case, *, tiled: bool) -> Variant:
    chunk, length = 512, 1024
    heads, kv_heads, dim, dtype, storage, _ = case
    tables = {"tables": POINTERS["int32" if tiled else "int64"], "tiles": POINTERS["int64"]}
    others = {"sinks": POINTERS["float32"], "out": case.pointers["query"]}
    numbers = {"places": "i32", "table_stride": "i32", "context": "i32", "chunk": "i32", "window": "i32"}
    return Variant(
        f"prefill {case}{'' if tiled else ', one chunk'}",
        prefill_kernel,
        case.pointers | tables | others | numbers | {"scale": "fp32", "softcap": "fp32"},
        _constants(heads, kv_heads, dim, dim, dtype, case.format)
        | {"SINKS": False, "TILED": tiled, "PAGE": PAGE if tiled else 1},
        read_bytes=dim * (2 * storage.itemsize * length * kv_heads + 2 * dtype.itemsize * chunk * heads),
        flops=4 * chunk * (length - chunk // 2) * heads * dim,
        stages=_STAGES,
        min_arch=case.min_arch,
        aligned=frozenset({*case.pointers, "out"}),
    )
