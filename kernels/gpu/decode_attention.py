"""Attention of one new token a sequence over its paged keys and values, split over the sequence.

Flash-Decoding's scheme (Dao et al., 2023, "Flash-Decoding for long-context inference") over vLLM's paging: a program
takes one sequence, one head of keys and one stretch of 256 positions, and keeps the running softmax of FlashAttention-2
(Dao, 2023, arXiv:2307.08691, section 3.1); a second launch joins the stretches in order. Stretches begin at fixed
positions, whatever else is in the batch, so that a sequence's result depends on nothing but the sequence.
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
    Stored,
    block_rows,
    cap,
    head_constants,
    read_cache,
    soften,
)
from loragate.kernels.gpu.dot import dot
from loragate.kernels.gpu.ops import like_query, operator
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.paged_attention import AttentionOptions, DecodeRows, LayerCache

STRETCH = 256
_STAGES = 2
BLOCK = 64  # positions at a time, at most


@triton.jit
def stretch_kernel(  # type: ignore[no-untyped-def]
    query,  # [sequences, heads, key_dim]
    keys,  # [kv_heads, places, key_dim]
    values,  # [kv_heads, places, value_dim]
    token_places,  # [sequences, longest]
    lengths,  # [sequences]
    key_scales,  # [kv_heads, places]
    value_scales,
    mixed,  # [stretches, sequences, heads, value_dim], float32: not yet divided by the sum of weights
    marks,  # [stretches, sequences, heads, 2], float32: highest score, sum of weights
    places,
    longest,
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
    BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    sequence, head, stretch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence).to(tl.int32)
    first_seen = tl.maximum(length - window, 0)
    begin = stretch * STRETCH
    end = tl.minimum(begin + STRETCH, length)
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
    for start in range(begin, end, BLOCK):
        position = start + tl.arange(0, BLOCK)
        seen = (position < end) & (position >= first_seen)
        place = tl.load(token_places + sequence.to(tl.int64) * longest + position, mask=position < end, other=0)
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
    if begin < end:
        at = (stretch * sequences + sequence) * HEADS + head * GROUP + row
        tl.store(mixed + at[:, None] * VALUE_DIM + e[None, :], total, mask=own[:, None] & (e < VALUE_DIM)[None, :])
        tl.store(marks + at * 2, highest, mask=own)
        tl.store(marks + at * 2 + 1, weight_sum, mask=own)


@triton.jit
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
    SINKS: tl.constexpr,
):
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence).to(tl.int32)
    e = tl.arange(0, VALUE_BLOCK)
    highest = float("-inf")
    weight_sum = 0.0
    if SINKS:
        highest = tl.load(sinks + head)
        weight_sum = 1.0
    total = tl.zeros((VALUE_BLOCK,), dtype=tl.float32)
    for stretch in range(tl.cdiv(length, STRETCH)):
        at = (stretch * sequences + sequence) * HEADS + head
        mark = tl.load(marks + at * 2)
        higher = tl.maximum(highest, mark)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        fade, rise = tl.exp(highest - base), tl.exp(mark - base)
        weight_sum = weight_sum * fade + tl.load(marks + at * 2 + 1) * rise
        part = tl.load(mixed + at * VALUE_DIM + e, mask=e < VALUE_DIM, other=0.0)
        total = total * fade + part * rise
        highest = higher
    target = out + (sequence * HEADS + head) * VALUE_DIM + e
    tl.store(target, (total / weight_sum).to(out.dtype.element_ty), mask=e < VALUE_DIM)


def decode_attention(query: Tensor, cache: "LayerCache", rows: "DecodeRows", options: "AttentionOptions") -> Tensor:
    """As `paged_attention.decode_attention`: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    assert rows.token_places.is_contiguous()
    tables = rows.token_places, rows.lengths
    out: Tensor = _attend(
        query, *Stored.of(cache), *tables, options.sinks, options.scale, options.softcap or 0.0, options.window or 0
    )
    return out


@operator(
    "decode_attention(Tensor query, Tensor keys, Tensor values, Tensor? key_scales, Tensor? value_scales, int format, "
    "Tensor token_places, Tensor lengths, Tensor? sinks, float scale, float softcap, int window) -> Tensor",
    fake=like_query,
)
def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    format_: int,
    token_places: Tensor,
    lengths: Tensor,
    sinks: Tensor | None,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    heads, sequences, key_dim = query.shape
    kv_heads, places, value_dim = values.shape
    longest = token_places.shape[1]
    stretches = -(-longest // STRETCH)
    mixed = torch.empty(stretches, sequences, heads, value_dim, dtype=torch.float32, device=query.device)
    marks = torch.empty(stretches, sequences, heads, 2, dtype=torch.float32, device=query.device)
    out = torch.empty(sequences, heads, value_dim, dtype=query.dtype, device=query.device)
    unread = marks  # stands where there is nothing to read
    stretch_kernel[(sequences, kv_heads, stretches)](
        *(query.transpose(0, 1).contiguous(), keys, values, token_places, lengths),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(mixed, marks, places, longest, sequences, scale, softcap, window or longest),
        **_constants(heads, kv_heads, key_dim, value_dim, query.dtype, format_),
        num_stages=_STAGES,
    )
    join_kernel[(sequences, heads)](
        *(mixed, marks, lengths, unread if sinks is None else sinks.float().contiguous(), out, sequences),
        HEADS=heads,
        VALUE_DIM=value_dim,
        VALUE_BLOCK=triton.next_power_of_2(value_dim),
        STRETCH=STRETCH,
        SINKS=sinks is not None,
    )
    return out.transpose(0, 1)


def _constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    return head_constants(heads, kv_heads, key_dim, value_dim, dtype, format_) | {
        "ROWS": max(LEAST_ROWS, triton.next_power_of_2(heads // kv_heads)),
        "STRETCH": STRETCH,
        "BLOCK": block_rows(key_dim, value_dim, dtype.itemsize, BLOCK),
    }


def variants() -> Iterator[Variant]:
    """Head sizes and groups that models have, at 16 sequences of 1,024 tokens."""
    sequences, length = 16, 1024
    for case in CASES:
        heads, kv_heads, dim, dtype, storage = case
        tables = {"token_places": POINTERS["int64"], "lengths": POINTERS["int64"]}
        results = {"mixed": POINTERS["float32"], "marks": POINTERS["float32"]}
        numbers = {"places": "i32", "longest": "i32", "sequences": "i32", "window": "i32"}
        yield Variant(
            f"attend {case}",
            stretch_kernel,
            case.pointers | tables | results | numbers | {"scale": "fp32", "softcap": "fp32"},
            _constants(heads, kv_heads, dim, dim, dtype, case.format),
            read_bytes=2 * storage.itemsize * sequences * length * kv_heads * dim,
            flops=4 * sequences * length * heads * dim,
            stages=_STAGES,
            aligned=frozenset({*case.pointers, *results, "longest"}),
        )
    yield Variant(
        "join stretches of 32 heads of 128",
        join_kernel,
        {"mixed": POINTERS["float32"], "marks": POINTERS["float32"], "lengths": POINTERS["int64"]}
        | {"sinks": POINTERS["float32"], "out": POINTERS["bfloat16"], "sequences": "i32"},
        {"HEADS": 32, "VALUE_DIM": 128, "VALUE_BLOCK": 128, "STRETCH": STRETCH, "SINKS": False},
        read_bytes=4 * sequences * length // STRETCH * 32 * (128 + 2),
        flops=4 * sequences * length // STRETCH * 32 * 128,
    )
