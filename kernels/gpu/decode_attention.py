"""Attention of one new token a sequence over its paged keys and values, split over the sequence.

Flash-Decoding's scheme (Dao et al., 2023, "Flash-Decoding for long-context inference") over vLLM's paging: a program
takes one sequence, one head of keys and every 16th stretch of 256 positions, and keeps the running softmax of
FlashAttention-2 (Dao, 2023, arXiv:2307.08691, section 3.1); a second launch joins what the programs found, in order.
Stretches begin at fixed positions, whatever else is in the batch, so that a sequence's result depends on nothing but
the sequence, and as many programs serve sequences of any length.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.attention import (
    CASES,
    LEAST_ROWS,
    PAGE,
    Stored,
    block_rows,
    cap,
    head_constants,
    places_of,
    read_cache,
    soften,
)
from loragate.kernels.gpu.dot import dot
from loragate.kernels.gpu.ops import nothing, operator
from loragate.kernels.gpu.quantization import PLAIN
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.attention_rows import AttentionOptions, DecodeRows
    from loragate.kernels.kv_cache import LayerCache

STRETCH = 256
SPLITS = 16  # programs that share a sequence
_STAGES = 2
BLOCK = 64  # positions at a time, at most


@triton.jit(do_not_specialize=["sequences", "window"])
def stretch_kernel(  # type: ignore[no-untyped-def]
    query,  # [sequences, heads, key_dim]
    keys,  # [kv_heads, places, key_dim]
    values,  # [kv_heads, places, value_dim]
    tables,  # [sequences, longest / PAGE]: pages
    lengths,  # [sequences]; 0: there is no such sequence
    key_scales,  # [kv_heads, places]
    value_scales,
    mixed,  # [splits, sequences, heads, value_dim], float32: not yet divided by the sum of weights
    marks,  # [splits, sequences, heads, 2], float32: highest score, sum of weights
    places,
    table_stride,
    sequences,
    scale,
    softcap,
    window,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    STRETCH: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence).to(tl.int32)
    if split * STRETCH >= length:
        return
    first_seen = tl.maximum(length - window, 0)
    row = tl.arange(0, ROWS)
    own = row < GROUP
    d = tl.arange(0, KEY_BLOCK)
    e = tl.arange(0, VALUE_BLOCK)
    q = tl.load(
        query + (sequence * HEADS + head * GROUP + row)[:, None] * KEY_DIM + d[None, :],
        mask=own[:, None] & (d < KEY_DIM)[None, :],
        other=0.0,
    )
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((ROWS,), dtype=tl.float32)
    total = tl.zeros((ROWS, VALUE_BLOCK), dtype=tl.float32)
    head_keys = keys + head.to(tl.int64) * places * KEY_DIM
    head_values = values + head.to(tl.int64) * places * VALUE_DIM
    head_key_scales = key_scales + head.to(tl.int64) * places
    head_value_scales = value_scales + head.to(tl.int64) * places
    table = tables + sequence.to(tl.int64) * table_stride
    for begin in range(split * STRETCH, length, SPLITS * STRETCH):
        end = tl.minimum(begin + STRETCH, length)
        for start in range(tl.where(end > first_seen, begin, end), end, BLOCK):  # nothing in front of the window
            position = start + tl.arange(0, BLOCK)
            seen = (position < end) & (position >= first_seen)
            place = places_of(table, position, position < end, PAGE)
            k = read_cache(
                head_keys,
                head_key_scales,
                place[None, :],
                d[:, None],
                seen[None, :],
                KEY_DIM,
                FORMAT,
                query.dtype.element_ty,
            )
            scores = cap(dot(q, k, tl.zeros((ROWS, BLOCK), dtype=tl.float32), WIDEN) * scale, softcap)
            weights, fade, highest, weight_sum = soften(scores, seen[None, :], highest, weight_sum)
            v = read_cache(
                head_values,
                head_value_scales,
                place[:, None],
                e[None, :],
                seen[:, None],
                VALUE_DIM,
                FORMAT,
                query.dtype.element_ty,
            )
            total = dot(weights.to(v.dtype), v, total * fade[:, None], WIDEN)
    at = (split * sequences + sequence) * HEADS + head * GROUP + row
    tl.store(mixed + at[:, None] * VALUE_DIM + e[None, :], total, mask=own[:, None] & (e < VALUE_DIM)[None, :])
    tl.store(marks + at * 2, highest, mask=own)
    tl.store(marks + at * 2 + 1, weight_sum, mask=own)


@triton.jit(do_not_specialize=["sequences"])
def join_kernel(  # type: ignore[no-untyped-def]
    mixed,
    marks,
    lengths,
    sinks,  # [heads], float32
    out,  # [sequences, heads, value_dim]
    sequences,
    HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    STRETCH: tl.constexpr,
    SPLITS: tl.constexpr,
    SINKS: tl.constexpr,
):
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence).to(tl.int32)
    if length == 0:
        return
    e = tl.arange(0, VALUE_BLOCK)
    split = tl.arange(0, SPLITS)
    there = split < tl.cdiv(length, STRETCH)
    at = (split * sequences + sequence) * HEADS + head
    marks_found = tl.load(marks + at * 2, mask=there, other=float("-inf"))
    sums = tl.load(marks + at * 2 + 1, mask=there, other=0.0)
    wanted = there[:, None] & (e < VALUE_DIM)[None, :]
    parts = tl.load(mixed + at[:, None] * VALUE_DIM + e[None, :], mask=wanted, other=0.0)
    highest = tl.max(marks_found)
    if SINKS:
        sink = tl.load(sinks + head)
        highest = tl.maximum(highest, sink)
    rise = tl.exp(marks_found - tl.where(highest == float("-inf"), 0.0, highest))
    weight_sum = tl.sum(sums * rise)
    if SINKS:
        weight_sum += tl.exp(sink - highest)
    total = tl.sum(parts * rise[:, None], axis=0)
    target = out + (sequence * HEADS + head) * VALUE_DIM + e
    tl.store(target, (total / weight_sum).to(out.dtype.element_ty), mask=e < VALUE_DIM)


def decode_attention(query: Tensor, cache: "LayerCache", rows: "DecodeRows", options: "AttentionOptions") -> Tensor:
    """As `paged_attention.decode_attention`: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    sequences = query.shape[1]
    out = torch.empty(sequences, query.shape[0], cache.values.shape[2], dtype=query.dtype, device=query.device)
    attend_into(out, query.transpose(0, 1).contiguous(), cache, rows.token_places, rows.lengths, 1, options)
    return out.transpose(0, 1)


def attend_into(
    out: Tensor,
    query: Tensor,
    cache: "LayerCache",
    tables: Tensor,
    lengths: Tensor,
    page: int,
    options: "AttentionOptions",
) -> None:
    """Fill the first rows of `out` [rows, heads, value_dim], given query [rows, heads, dim]: row i is the new token of
    sequence i, whose pages of so many places are tables[i]. Where its length is 0, `out` stays as it is."""
    assert query.is_contiguous()
    assert out.is_contiguous()
    assert tables.stride(1) == 1
    numbers = options.scale, options.softcap or 0.0, options.window or 0, page
    _attend(out, query, *Stored.of(cache), tables, lengths, options.sinks, *numbers)


@operator(
    "decode_attention(Tensor(a!) out, Tensor query, Tensor keys, Tensor values, Tensor? key_scales, "
    "Tensor? value_scales, int format, Tensor tables, Tensor lengths, Tensor? sinks, float scale, float softcap, "
    "int window, int page) -> ()",
    fake=nothing,
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
    lengths: Tensor,
    sinks: Tensor | None,
    scale: float,
    softcap: float,
    window: int,
    page: int,
) -> None:
    _, heads, key_dim = query.shape
    kv_heads, places, value_dim = values.shape
    sequences, longest = lengths.shape[0], tables.shape[1] * page
    splits = min(SPLITS, triton.cdiv(longest, STRETCH))
    mixed = torch.empty(splits, sequences, heads, value_dim, dtype=torch.float32, device=query.device)
    marks = torch.empty(splits, sequences, heads, 2, dtype=torch.float32, device=query.device)
    unread = marks  # stands where there is nothing to read
    stretch_kernel[(sequences, kv_heads, splits)](
        *(query, keys, values, tables, lengths),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(mixed, marks, places, tables.stride(0), sequences, scale, softcap, window or longest),
        **_constants(heads, kv_heads, key_dim, value_dim, query.dtype, format_),
        PAGE=page,
        num_stages=_STAGES,
    )
    join_kernel[(sequences, heads)](
        *(mixed, marks, lengths, unread if sinks is None else sinks.float().contiguous(), out, sequences),
        HEADS=heads,
        VALUE_DIM=value_dim,
        VALUE_BLOCK=triton.next_power_of_2(value_dim),
        STRETCH=STRETCH,
        SPLITS=SPLITS,
        SINKS=sinks is not None,
    )


def _constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    return head_constants(heads, kv_heads, key_dim, value_dim, dtype, format_) | {
        "ROWS": max(LEAST_ROWS, triton.next_power_of_2(heads // kv_heads)),
        "STRETCH": STRETCH,
        "SPLITS": SPLITS,
        "BLOCK": block_rows(key_dim, value_dim, dtype.itemsize * (1 if format_ == PLAIN else 2), BLOCK),
    }


def variants() -> Iterator[Variant]:
    """Head sizes and groups that models have, at 16 sequences of 1,024 tokens."""
    sequences, length = 16, 1024
    for case in CASES:
        heads, kv_heads, dim, dtype, storage = case
        tables = {"tables": POINTERS["int64"], "lengths": POINTERS["int64"]}
        results = {"mixed": POINTERS["float32"], "marks": POINTERS["float32"]}
        numbers = {"places": "i32", "table_stride": "i32", "sequences": "i32", "window": "i32"}
        yield Variant(
            f"attend {case}",
            stretch_kernel,
            case.pointers | tables | results | numbers | {"scale": "fp32", "softcap": "fp32"},
            _constants(heads, kv_heads, dim, dim, dtype, case.format) | {"PAGE": PAGE},
            read_bytes=2 * storage.itemsize * sequences * length * kv_heads * dim,
            flops=4 * sequences * length * heads * dim,
            stages=_STAGES,
            aligned=frozenset({*case.pointers, *results, "table_stride"}),
        )
    yield Variant(
        "join stretches of 32 heads of 128",
        join_kernel,
        {"mixed": POINTERS["float32"], "marks": POINTERS["float32"], "lengths": POINTERS["int64"]}
        | {"sinks": POINTERS["float32"], "out": POINTERS["bfloat16"], "sequences": "i32"},
        {"HEADS": 32, "VALUE_DIM": 128, "VALUE_BLOCK": 128, "STRETCH": STRETCH, "SPLITS": SPLITS, "SINKS": False},
        read_bytes=4 * sequences * length // STRETCH * 32 * (128 + 2),
        flops=4 * sequences * length // STRETCH * 32 * 128,
    )
