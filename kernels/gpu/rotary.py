"""Rotary embeddings of queries and keys in one launch instead of torch's dozen; a program handles one row and a few
heads."""

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
    angles_cos, angles_sin = cos + row * ROTATED, sin + row * ROTATED
    query_blocks = tl.cdiv(heads, HEADS)
    if block < query_blocks:
        head = (block * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        source = query + head * query_head_stride + row * query_row_stride
        target = query_out + (row * heads + head) * DIM
        _rotate_heads(source, target, head < heads, angles_cos, angles_sin, DIM, ROTATED, ROUNDS)
    else:
        head = ((block - query_blocks) * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        source = key + head * key_head_stride + row * key_row_stride
        target = key_out + (row * kv_heads + head) * DIM
        _rotate_heads(source, target, head < kv_heads, angles_cos, angles_sin, DIM, ROTATED, ROUNDS)


@triton.jit
def _rotate_heads(  # type: ignore[no-untyped-def]
    sources, targets, there, cos, sin, DIM: tl.constexpr, ROTATED: tl.constexpr, ROUNDS: tl.constexpr
):
    half: tl.constexpr = ROTATED // 2
    d = tl.arange(0, triton.next_power_of_2(DIM))[None]
    rotated = d < ROTATED
    x = tl.load(sources + d, mask=there & (d < DIM), other=0.0)
    partner = tl.where(d < half, d + half, d - half)
    other = tl.load(sources + partner, mask=there & rotated, other=0.0).to(tl.float32)
    other = tl.where(d < half, -other, other)
    straight = x.to(tl.float32) * tl.load(cos + d, mask=rotated, other=1.0).to(tl.float32)
    across = other * tl.load(sin + d, mask=rotated, other=0.0).to(tl.float32)
    if ROUNDS:
        straight, across = straight.to(x.dtype).to(tl.float32), across.to(x.dtype).to(tl.float32)
    tl.store(targets + d, (straight + across).to(x.dtype), mask=there & (d < DIM))


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `kernels.rotary.rotate`; the results are laid out rows first, like queries and keys from a linear."""
    rotated_query, rotated_key = _rotate(query[0], key[0], cos[0], sin[0])
    return rotated_query.transpose(0, 1)[None], rotated_key.transpose(0, 1)[None]


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


def variants() -> Iterator[Variant]:
    """Return variants of 16 rows of 32 heads and 8 key heads, rotated in whole and by a quarter."""
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
