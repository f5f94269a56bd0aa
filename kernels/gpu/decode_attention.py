"""Attention of one new token per sequence over its paged keys and values, split along the sequence.

Flash-Decoding's scheme (Dao et al., 2023, "Flash-Decoding for long-context inference") over vLLM's paging: a program
handles one sequence, one head of keys and, of 16 programs, every 16th chunk of 256 positions, and keeps the running
softmax of FlashAttention-2 (Dao, 2023, arXiv:2307.08691, section 3.1). A second launch combines the results of the
programs in order. Chunks begin at fixed positions regardless of the rest of the batch, and the number of programs is
the model's, so a sequence's result depends only on the sequence.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.attention import (
    CASES,
    MIN_ROWS,
    PAGE,
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
from loragate.kernels.gpu.quantization import scaled, value_dtype
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.attention_rows import AttentionOptions, DecodeRows
    from loragate.kernels.kv_cache import LayerCache

KV_CHUNK = 256
MIN_SPLITS, MAX_SPLITS = 16, 64  # programs that share a sequence and a head of keys
_PROGRAMS = 128  # that share a sequence: about one for each multiprocessor
_STAGES = 2
BLOCK = 64  # maximum positions at a time


@triton.jit(do_not_specialize=["sequences", "window"])
def split_kv_kernel(  # type: ignore[no-untyped-def]
    query,  # [sequences, heads, key_dim]
    keys,  # [kv_heads, places, key_dim]
    values,  # [kv_heads, places, value_dim]
    tables,  # [sequences, longest / PAGE]: pages
    lengths,  # [sequences]; 0 stats an unused entry
    key_scales,  # [kv_heads, places]
    value_scales,
    partial,  # [splits, sequences, heads, value_dim], float32, not yet divided by the sum of weights
    stats,  # [splits, sequences, heads, 2], float32: highest score and sum of weights
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
    KV_CHUNK: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence).to(tl.int32)
    if split * KV_CHUNK >= length:
        return
    KEY_DTYPE: tl.constexpr = query.dtype.element_ty
    VALUE_DTYPE: tl.constexpr = value_dtype(KEY_DTYPE, FORMAT)
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
    for begin in range(split * KV_CHUNK, length, SPLITS * KV_CHUNK):
        end = tl.minimum(begin + KV_CHUNK, length)
        for start in range(tl.where(end > first_seen, begin, end), end, BLOCK):  # skips positions before the window
            position = start + tl.arange(0, BLOCK)
            seen = (position < end) & (position >= first_seen)
            place = places_at(table, start, position < end, PAGE, BLOCK)
            k = read_cache(head_keys, place[None, :], d[:, None], seen[None, :], KEY_DIM, FORMAT, KEY_DTYPE)
            scores = dot(q, k, tl.zeros((ROWS, BLOCK), dtype=tl.float32), WIDEN)
            scores = soft_cap(scaled(scores, scale, head_key_scales, place, seen, FORMAT), softcap)
            weights, rescale, highest, weight_sum = online_softmax_step(scores, seen[None, :], highest, weight_sum)
            weights = scaled(weights, 1.0, head_value_scales, place, seen, FORMAT)
            v = read_cache(head_values, place[:, None], e[None, :], seen[:, None], VALUE_DIM, FORMAT, VALUE_DTYPE)
            total = dot(weights.to(VALUE_DTYPE), v, total * rescale[:, None], WIDEN)
    at = (split * sequences + sequence) * HEADS + head * GROUP + row
    tl.store(partial + at[:, None] * VALUE_DIM + e[None, :], total, mask=own[:, None] & (e < VALUE_DIM)[None, :])
    tl.store(stats + at * 2, highest, mask=own)
    tl.store(stats + at * 2 + 1, weight_sum, mask=own)


@triton.jit(do_not_specialize=["sequences"])
def combine_kernel(  # type: ignore[no-untyped-def]
    partial,
    stats,
    lengths,
    sinks,  # [heads], float32
    out,  # [sequences, heads, value_dim]
    sequences,
    HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    KV_CHUNK: tl.constexpr,
    SPLITS: tl.constexpr,
    SINKS: tl.constexpr,
):
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence).to(tl.int32)
    e = tl.arange(0, VALUE_BLOCK)
    split = tl.arange(0, SPLITS)
    there = split < tl.cdiv(length, KV_CHUNK)
    at = (split * sequences + sequence) * HEADS + head
    stats_found = tl.load(stats + at * 2, mask=there, other=float("-inf"))
    sums = tl.load(stats + at * 2 + 1, mask=there, other=0.0)
    wanted = there[:, None] & (e < VALUE_DIM)[None, :]
    parts = tl.load(partial + at[:, None] * VALUE_DIM + e[None, :], mask=wanted, other=0.0)
    highest = tl.max(stats_found)
    if SINKS:
        sink = tl.load(sinks + head)
        highest = tl.maximum(highest, sink)
    rescale = tl.exp(stats_found - tl.where(highest == float("-inf"), 0.0, highest))
    weight_sum = tl.sum(sums * rescale)
    if SINKS:
        weight_sum += tl.exp(sink - highest)
    total = tl.sum(parts * rescale[:, None], axis=0)
    weight_sum = tl.where(length == 0, 1.0, weight_sum)  # the result of an unused entry is zero
    target = out + (sequence * HEADS + head) * VALUE_DIM + e
    tl.store(target, (total / weight_sum).to(out.dtype.element_ty), mask=e < VALUE_DIM)


def decode_attention(query: Tensor, cache: "LayerCache", rows: "DecodeRows", options: "AttentionOptions") -> Tensor:
    """Compute `paged_attention.decode_attention`: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
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
    """Fill the first rows of `out` [rows, heads, value_dim], given query [rows, heads, dim].

    Row i is the new token of sequence i, whose pages of `page` places are tables[i]. Where its length is 0, the result
    is zero.
    """
    assert query.is_contiguous()
    assert out.is_contiguous()
    assert tables.stride(1) == 1
    numbers = options.scale, options.softcap or 0.0, options.window or 0, page
    _attend(out, query, *Stored.from_cache(cache), tables, lengths, options.sinks, *numbers)


@operator(
    "decode_attention(Tensor(a!) out, Tensor query, Tensor keys, Tensor values, Tensor? key_scales, "
    "Tensor? value_scales, int format, Tensor tables, Tensor lengths, Tensor? sinks, float scale, float softcap, "
    "int window, int page) -> ()",
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
    constants = _constants(heads, kv_heads, key_dim, value_dim, query.dtype, format_)
    splits = min(constants["SPLITS"], triton.cdiv(longest, KV_CHUNK))
    partial = torch.empty(splits, sequences, heads, value_dim, dtype=torch.float32, device=query.device)
    stats = torch.empty(splits, sequences, heads, 2, dtype=torch.float32, device=query.device)
    unread = stats  # placeholder for tensors that are not read
    split_kv_kernel[(sequences, kv_heads, splits)](
        *(query, keys, values, tables, lengths),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(partial, stats, places, tables.stride(0), sequences, scale, softcap, window or longest),
        **constants,
        PAGE=page,
        num_stages=_STAGES,
    )
    combine_kernel[(sequences, heads)](
        *(partial, stats, lengths, unread if sinks is None else sinks.float().contiguous(), out, sequences),
        HEADS=heads,
        VALUE_DIM=value_dim,
        VALUE_BLOCK=triton.next_power_of_2(value_dim),
        KV_CHUNK=KV_CHUNK,
        SPLITS=constants["SPLITS"],
        SINKS=sinks is not None,
    )


def splits_for(kv_heads: int) -> int:
    """Return the programs that share a sequence and a head of keys: more of them for models with few such heads, so
    that one long sequence occupies a GPU."""
    enough: int = triton.next_power_of_2(_PROGRAMS // kv_heads)
    return max(MIN_SPLITS, min(MAX_SPLITS, enough))


def _constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    return head_constants(heads, kv_heads, key_dim, value_dim, dtype, format_) | {
        "ROWS": max(MIN_ROWS, triton.next_power_of_2(heads // kv_heads)),
        "KV_CHUNK": KV_CHUNK,
        "SPLITS": splits_for(kv_heads),
        "BLOCK": block_rows(key_dim, value_dim, dtype.itemsize, BLOCK),
    }


def variants() -> Iterator[Variant]:
    """Return variants for the head sizes and groups that models have, at 16 sequences of 1,024 tokens."""
    sequences, length = 16, 1024
    for case in CASES:
        heads, kv_heads, dim, dtype, storage, _ = case
        tables = {"tables": POINTERS["int32"], "lengths": POINTERS["int64"]}
        results = {"partial": POINTERS["float32"], "stats": POINTERS["float32"]}
        numbers = {"places": "i32", "table_stride": "i32", "sequences": "i32", "window": "i32"}
        constants = _constants(heads, kv_heads, dim, dim, dtype, case.format) | {"PAGE": PAGE}
        yield Variant(
            f"attend {case}",
            split_kv_kernel,
            case.pointers | tables | results | numbers | {"scale": "fp32", "softcap": "fp32"},
            constants,
            read_bytes=2 * storage.itemsize * sequences * length * kv_heads * dim,
            flops=4 * sequences * length * heads * dim,
            loop_bytes=2 * storage.itemsize * constants["BLOCK"] * dim,
            iterations=KV_CHUNK // constants["BLOCK"],
            stages=_STAGES,
            min_arch=case.min_arch,
            aligned=frozenset({*case.pointers, *results, "table_stride"}),
        )
    yield Variant(
        "combine splits of 32 heads of 128",
        combine_kernel,
        {"partial": POINTERS["float32"], "stats": POINTERS["float32"], "lengths": POINTERS["int64"]}
        | {"sinks": POINTERS["float32"], "out": POINTERS["bfloat16"], "sequences": "i32"},
        {"HEADS": 32, "VALUE_DIM": 128, "VALUE_BLOCK": 128, "KV_CHUNK": KV_CHUNK, "SPLITS": MIN_SPLITS, "SINKS": False},
        read_bytes=4 * sequences * length // KV_CHUNK * 32 * (128 + 2),
        flops=4 * sequences * length // KV_CHUNK * 32 * 128,
    )
