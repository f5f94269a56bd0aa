"""Rotary embeddings of queries and keys in one launch instead of torch's dozen; a program handles one row and a few
heads.

The same launch can write keys and values to the cache. A key's program then has what it stores in registers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.attention import Stored
from loragate.kernels.gpu.kv_write import load_heads, store_heads
from loragate.kernels.gpu.ops import no_output, operator
from loragate.kernels.gpu.quantization import E4M3, INT8, PLAIN
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.kv_cache import LayerCache

_HEADS = 8


@triton.jit
def rotary_kernel(  # type: ignore[no-untyped-def]
    query,  # [heads, rows, dim]
    key,  # [kv_heads, rows, dim]
    cos,  # [rows, rotated]
    sin,
    query_out,  # [rows, heads, dim], contiguous
    key_out,  # [rows, kv_heads, dim]
    heads,
    kv_heads,
    query_head_stride,
    query_row_stride,
    key_head_stride,
    key_row_stride,
    HEADS: tl.constexpr,  # heads per program
    DIM: tl.constexpr,
    ROTATED: tl.constexpr,
    ROUNDS: tl.constexpr,  # round each product to the model's dtype before the sum, as torch's operators do
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_blocks = tl.cdiv(heads, HEADS)
    if block < query_blocks:
        head = _heads_of(block, HEADS)
        source = query + head * query_head_stride + row * query_row_stride
        _rotate_heads(source, query_out, row, head, heads, cos, sin, DIM, ROTATED, ROUNDS)
    else:
        head = _heads_of(block - query_blocks, HEADS)
        source = key + head * key_head_stride + row * key_row_stride
        _rotate_heads(source, key_out, row, head, kv_heads, cos, sin, DIM, ROTATED, ROUNDS)


@triton.jit
def rotary_write_kernel(  # type: ignore[no-untyped-def]
    query,  # [heads, rows, dim]
    key,  # [kv_heads, rows, dim]
    value,  # [kv_heads, rows, value_dim]
    cos,  # [rows, rotated]
    sin,
    query_out,  # [rows, heads, dim], contiguous
    key_out,  # [rows, kv_heads, dim]
    targets,  # [rows]
    keys,  # [kv_heads, places, dim]
    values,
    key_scales,  # [kv_heads, places]
    value_scales,
    heads,
    kv_heads,
    places,
    query_head_stride,
    query_row_stride,
    key_head_stride,
    key_row_stride,
    value_head_stride,
    value_row_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    ROTATED: tl.constexpr,
    ROUNDS: tl.constexpr,
    FORMAT: tl.constexpr,
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_blocks = tl.cdiv(heads, HEADS)
    if block < query_blocks:
        head = _heads_of(block, HEADS)
        source = query + head * query_head_stride + row * query_row_stride
        _rotate_heads(source, query_out, row, head, heads, cos, sin, DIM, ROTATED, ROUNDS)
    else:
        head = _heads_of(block - query_blocks, HEADS)
        there = head < kv_heads
        at = head * places + tl.load(targets + row)
        source = key + head * key_head_stride + row * key_row_stride
        rotated = _rotate_heads(source, key_out, row, head, kv_heads, cos, sin, DIM, ROTATED, ROUNDS)
        store_heads(rotated, keys, key_scales, at, there, DIM, FORMAT)
        numbers = load_heads(value + head * value_head_stride + row * value_row_stride, there, VALUE_DIM)
        store_heads(numbers, values, value_scales, at, there, VALUE_DIM, FORMAT)


@triton.jit
def _heads_of(block, HEADS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the numbers [HEADS, 1] of a block's heads."""
    return (block * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]


@triton.jit
def _rotate_heads(  # type: ignore[no-untyped-def]
    sources, out, row, head, heads, cos, sin, DIM: tl.constexpr, ROTATED: tl.constexpr, ROUNDS: tl.constexpr
):
    """Store the rotated heads of a row [HEADS, DIM, rounded up to a power of two] in `out` [rows, heads, DIM], and
    return them."""
    half: tl.constexpr = ROTATED // 2
    there, targets = head < heads, out + (row * heads + head) * DIM
    cos, sin = cos + row * ROTATED, sin + row * ROTATED
    d = tl.arange(0, triton.next_power_of_2(DIM))[None]
    rotated = d < ROTATED
    x = load_heads(sources, there, DIM)
    partner = tl.where(d < half, d + half, d - half)
    other = tl.load(sources + partner, mask=there & rotated, other=0.0).to(tl.float32)
    other = tl.where(d < half, -other, other)
    straight = x.to(tl.float32) * tl.load(cos + d, mask=rotated, other=1.0).to(tl.float32)
    across = other * tl.load(sin + d, mask=rotated, other=0.0).to(tl.float32)
    if ROUNDS:
        straight, across = straight.to(x.dtype).to(tl.float32), across.to(x.dtype).to(tl.float32)
    out = (straight + across).to(x.dtype)
    tl.store(targets + d, out, mask=there & (d < DIM))
    return out


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `kernels.rotary.rotate`; the results are laid out rows first, like queries and keys from a linear."""
    rotated_query, rotated_key = _rotate(query[0], key[0], cos[0], sin[0])
    return rotated_query.transpose(0, 1)[None], rotated_key.transpose(0, 1)[None]


def rotate_and_write(
    out: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    cache: "LayerCache",
    targets: Tensor,
    values: Tensor,
) -> None:
    """Write the result of `rotate` to `out`, and its keys with `values` [kv_heads, rows, dim] to the cache's places
    `targets` [rows]."""
    rows_first = (each[0].transpose(0, 1) for each in out)
    _rotate_and_write(query[0], key[0], values, cos[0], sin[0], *rows_first, targets, *Stored.from_cache(cache))


def unfilled(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return memory for the result of `rotate`."""
    queries, keys = _rows_first(query[0], key[0])
    return queries.transpose(0, 1)[None], keys.transpose(0, 1)[None]


def _rows_first(query: Tensor, key: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    return tuple(x.new_empty(x.shape[1], x.shape[0], x.shape[2]) for x in (query, key))  # type: ignore[return-value]


@operator("rotate(Tensor query, Tensor key, Tensor cos, Tensor sin) -> (Tensor, Tensor)", fake=_rows_first)
def _rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    outs = _rows_first(query, key)
    (heads, rows, dim), kv_heads = query.shape, key.shape[0]
    cos, sin = cos.contiguous(), sin.contiguous()
    assert query.stride(2) == key.stride(2) == 1
    rotary_kernel[(rows, triton.cdiv(heads, _HEADS) + triton.cdiv(kv_heads, _HEADS))](
        *(query, key, cos, sin, *outs, heads, kv_heads, *query.stride()[:2], *key.stride()[:2]),
        HEADS=_HEADS,
        DIM=dim,
        ROTATED=cos.shape[1],
        ROUNDS=cos.dtype == query.dtype,
    )
    return outs


@operator(
    "rotate_and_write(Tensor query, Tensor key, Tensor value, Tensor cos, Tensor sin, Tensor(a!) query_out, "
    "Tensor(b!) key_out, Tensor targets, Tensor(c!) keys, Tensor(d!) values, Tensor(e!)? key_scales, "
    "Tensor(f!)? value_scales, int format) -> ()",
    fake=no_output,
)
def _rotate_and_write(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    query_out: Tensor,
    key_out: Tensor,
    targets: Tensor,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    format_: int,
) -> None:
    (heads, rows, dim), kv_heads = query.shape, key.shape[0]
    cos, sin = cos.contiguous(), sin.contiguous()
    assert query.stride(2) == key.stride(2) == value.stride(2) == 1
    assert query_out.is_contiguous()
    assert key_out.is_contiguous()
    unread = keys  # placeholder where there are no scales
    rotary_write_kernel[(rows, triton.cdiv(heads, _HEADS) + triton.cdiv(kv_heads, _HEADS))](
        *(query, key, value, cos, sin, query_out, key_out, targets, keys, values),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(heads, kv_heads, keys.shape[1], *query.stride()[:2], *key.stride()[:2], *value.stride()[:2]),
        HEADS=_HEADS,
        DIM=dim,
        VALUE_DIM=value.shape[2],
        ROTATED=cos.shape[1],
        ROUNDS=cos.dtype == query.dtype,
        FORMAT=format_,
    )


def variants() -> Iterator[Variant]:
    """Return variants of 16 rows of 32 heads and 8 key heads, rotated in whole and by a quarter, and written."""
    rows, heads, kv_heads, dim = 16, 32, 8, 128
    moved = rows * (heads + kv_heads) * dim
    tensors = ("query", "key", "cos", "sin", "query_out", "key_out")
    strides = ("query_head_stride", "query_row_stride", "key_head_stride", "key_row_stride")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for rotated in (dim, dim // 4):
            yield Variant(
                f"rotary {name} {rotated} of {dim}",
                rotary_kernel,
                dict.fromkeys(tensors, POINTERS[name]) | dict.fromkeys(("heads", "kv_heads", *strides), "i32"),
                {"HEADS": _HEADS, "DIM": dim, "ROTATED": rotated, "ROUNDS": True},
                read_bytes=dtype.itemsize * 2 * (moved + rows * rotated),
                flops=3 * moved * rotated // dim,
                aligned=frozenset({*tensors, *strides}),
            )
        for storage, format_ in ((dtype, PLAIN), (torch.int8, INT8), (torch.float8_e4m3fn, E4M3)):
            kept = str(storage).removeprefix("torch.")
            new = dict.fromkeys((*tensors, "value"), POINTERS[name])
            held = dict.fromkeys(("keys", "values"), POINTERS[kept])
            scales = dict.fromkeys(("key_scales", "value_scales"), POINTERS["float32"])
            value_strides = ("value_head_stride", "value_row_stride")
            sizes = dict.fromkeys(("heads", "kv_heads", "places", *strides, *value_strides), "i32")
            yield Variant(
                f"rotary {name}, written as {kept}",
                rotary_write_kernel,
                new | {"targets": POINTERS["int64"]} | held | scales | sizes,
                {"HEADS": _HEADS, "DIM": dim, "VALUE_DIM": dim, "ROTATED": dim, "ROUNDS": True, "FORMAT": format_},
                read_bytes=dtype.itemsize * (2 * moved + rows * (2 * dim + kv_heads * dim))
                + storage.itemsize * 2 * rows * kv_heads * dim,
                flops=3 * moved + (0 if storage == dtype else 6 * rows * kv_heads * dim),
                aligned=frozenset({*new, *held, *strides, *value_strides}),
            )
