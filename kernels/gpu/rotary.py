"""Rotary embeddings of queries and keys in one launch, where torch takes a dozen: a program takes a row
and a few heads."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.variant import POINTERS, Variant

_HEADS = 8


@triton.jit
def rotary_kernel(  # type: ignore[no-untyped-def]
    query,  # [heads, rows, dim]
    key,  # [kv_heads, rows, dim]
    cos,  # [rows, turned]
    sin,
    query_out,  # [rows, heads, dim], contiguous
    key_out,  # [rows, kv_heads, dim]
    heads,
    kv_heads,
    query_head_stride,
    query_row_stride,
    key_head_stride,
    key_row_stride,
    HEADS: tl.constexpr,  # of a program
    DIM: tl.constexpr,
    TURNED: tl.constexpr,
    ROUNDS: tl.constexpr,  # each product to the model's dtype before they are added, as by torch's operators
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    angles_cos, angles_sin = cos + row * TURNED, sin + row * TURNED
    query_blocks = tl.cdiv(heads, HEADS)
    if block < query_blocks:
        head = (block * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        source = query + head * query_head_stride + row * query_row_stride
        target = query_out + (row * heads + head) * DIM
        _turn(source, target, head < heads, angles_cos, angles_sin, DIM, TURNED, ROUNDS)
    else:
        head = ((block - query_blocks) * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        source = key + head * key_head_stride + row * key_row_stride
        target = key_out + (row * kv_heads + head) * DIM
        _turn(source, target, head < kv_heads, angles_cos, angles_sin, DIM, TURNED, ROUNDS)


@triton.jit
def _turn(  # type: ignore[no-untyped-def]
    sources, targets, there, cos, sin, DIM: tl.constexpr, TURNED: tl.constexpr, ROUNDS: tl.constexpr
):
    half: tl.constexpr = TURNED // 2
    d = tl.arange(0, triton.next_power_of_2(DIM))[None]
    turned = d < TURNED
    x = tl.load(sources + d, mask=there & (d < DIM), other=0.0)
    partner = tl.where(d < half, d + half, d - half)
    other = tl.load(sources + partner, mask=there & turned, other=0.0).to(tl.float32)
    other = tl.where(d < half, -other, other)
    straight = x.to(tl.float32) * tl.load(cos + d, mask=turned, other=1.0).to(tl.float32)
    across = other * tl.load(sin + d, mask=turned, other=0.0).to(tl.float32)
    if ROUNDS:
        straight, across = straight.to(x.dtype).to(tl.float32), across.to(x.dtype).to(tl.float32)
    tl.store(targets + d, (straight + across).to(x.dtype), mask=there & (d < DIM))


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """As `kernels.rotary.rotate`; the results lie rows first in memory, as linears give queries and keys."""
    turned_query, turned_key = _rotate(query[0], key[0], cos[0], sin[0])
    return turned_query.transpose(0, 1)[None], turned_key.transpose(0, 1)[None]


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
        TURNED=cos.shape[1],
        ROUNDS=cos.dtype == query.dtype,
    )
    return outs


def variants() -> Iterator[Variant]:
    """16 rows of 32 heads and 8 of keys, turned whole and by a quarter."""
    rows, heads, kv_heads, dim = 16, 32, 8, 128
    moved = rows * (heads + kv_heads) * dim
    tensors = ("query", "key", "cos", "sin", "query_out", "key_out")
    strides = ("query_head_stride", "query_row_stride", "key_head_stride", "key_row_stride")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for turned in (dim, dim // 4):
            yield Variant(
                f"rotary {name} {turned} of {dim}",
                rotary_kernel,
                dict.fromkeys(tensors, POINTERS[name]) | dict.fromkeys(("heads", "kv_heads", *strides), "i32"),
                {"HEADS": _HEADS, "DIM": dim, "TURNED": turned, "ROUNDS": True},
                read_bytes=dtype.itemsize * 2 * (moved + rows * turned),
                flops=3 * moved * turned // dim,
                aligned=frozenset({*tensors, *strides}),
            )
