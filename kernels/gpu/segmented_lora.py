"""Segmented LoRA in two launches per fused module, for adapters of any ranks.

The gathered products are those of Punica and S-LoRA (Chen et al., 2023, arXiv:2310.18547, section 4; Sheng et al.,
2023, arXiv:2311.03285, section 5). Rows come sorted by slot, and the work is a flat list of tiles: a few rows of one
slot each. *Shrink* multiplies a tile by some ranks of its A, in programs that share the chunks of ranks. *Expand* takes
a tile's ranks, 16 at a time, to some columns of one target module, and applies the adapter's other change there: out ·
scale + shift. Ranks are read when a program runs: one launch serves all of them, and a program whose ranks or module
its adapter does not have ends at once.

Segments of a decode step are short and bound by the memory traffic of their adapters: tiles have 16 rows, and the
inputs are divided among programs. Those of a prefill are long and bound by arithmetic: tiles have 64 rows, with 64
ranks at once.

No two programs write to the same number, and each sums in an order that does not depend on its neighbours: a row's
result is the same in any batch, to the last bit. Rows without an adapter are in no tile.
"""

from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.dot import dot, widen
from loragate.kernels.gpu.ops import no_output, operator
from loragate.kernels.gpu.slot_tables import MEMBER_FIELDS, SLOT_FIELDS, SlotTable
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.segments import DECODE, PREFILL, TILINGS, WorkList

RANK_CHUNK = 16
_FEW_RANKS, _MORE_RANKS = 16, 64  # of one member; expand's sums of so many ranks stay in registers
_PROGRAMS = 1024  # about the number of shrink programs that a GPU runs at once
_MIN_TILE_PROGRAMS = 4  # rank 16 on q, k and v takes three
_SUMS_OF_FOUR_WARPS = 4096  # 32 per thread
_EXPAND_STAGES = 4  # blocks of columns, of which all but one are in flight


@triton.jit(do_not_specialize=["slot_count"])
def shrink_kernel(  # type: ignore[no-untyped-def]
    x,  # [rows, in_features]
    shrunk,  # [SPLITS, rows, shrunk_stride], float32
    tiles,  # [tiles, 3]
    slots,  # [slot_count, fields of a slot]; consecutive slots are SLOT_STRIDE apart
    slot_count,
    used,  # [1], the number of slots with weights
    in_features,
    x_stride,
    shrunk_stride,
    split_stride,
    SLOT_STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    LOOPS: tl.constexpr,  # loop over chunks of ranks, when there are more of them than programs
    ALIGNED: tl.constexpr,  # see `SlotTable.aligned`
    WIDEN: tl.constexpr,
):
    tile, turn, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot, first, count = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if (tl.load(used) == 0) | (slot >= slot_count):
        return
    a_at, rank = tl.load(slots + slot * SLOT_STRIDE), tl.load(slots + slot * SLOT_STRIDE + 1)
    if turn * RANKS >= rank:
        return
    a = _at(a_at, x.dtype.element_ty, ALIGNED)
    row = tl.arange(0, ROWS)
    source, mine = x + (first + row)[:, None] * x_stride, (row < count)[:, None]
    target = shrunk + split * split_stride + (first + row)[:, None] * shrunk_stride
    if LOOPS:
        for chunk in range(turn, tl.cdiv(rank, RANKS), tl.num_programs(1)):
            ranks = chunk * RANKS + tl.arange(0, RANKS)
            _shrink(source, mine, a, ranks, rank, target, split, in_features, ROWS, RANKS, BLOCK_K, SPLITS, WIDEN)
    else:
        ranks = turn * RANKS + tl.arange(0, RANKS)
        _shrink(source, mine, a, ranks, rank, target, split, in_features, ROWS, RANKS, BLOCK_K, SPLITS, WIDEN)


@triton.jit
def _at(address, dtype: tl.constexpr, ALIGNED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a pointer from an address in a table.

    The compiler knows nothing about it. It reads 16 bytes at once, and prefetches, only if it knows that the numbers
    begin at a multiple of 16 bytes.
    """
    found = address.to(tl.pointer_type(dtype))
    if ALIGNED:
        found = tl.multiple_of(found, 16)
    return found


@triton.jit
def _shrink(  # type: ignore[no-untyped-def]
    source,  # [ROWS, 1], the rows of x that are `mine`
    mine,
    a,
    ranks,
    rank,
    target,  # [ROWS, 1]
    split,
    in_features,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    total = tl.zeros((ROWS, RANKS), dtype=tl.float32)
    there = (ranks < rank)[None, :]
    for start in range(split * BLOCK_K, in_features, SPLITS * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x_tile = tl.load(source + k[None, :], mask=mine & (k < in_features)[None, :], other=0.0)
        a_tile = tl.load(
            a + ranks[None, :] * in_features + k[:, None], mask=there & (k < in_features)[:, None], other=0.0
        )
        total = dot(x_tile, a_tile, total, WIDEN)
    tl.store(target + ranks[None, :], total, mask=mine & there)


@triton.jit(do_not_specialize=["slot_count"])
def expand_kernel(  # type: ignore[no-untyped-def]
    out,  # [rows, out_features], changed in place
    shrunk,  # [SPLITS, rows, shrunk_stride], float32
    tiles,  # [tiles, 3]
    slots,  # [slot_count, fields of a slot]; consecutive slots are SLOT_STRIDE apart
    slot_count,
    used,  # [1], the number of slots with weights
    blocks,  # [blocks, 5]: member, columns at which the block begins and ends, and those of the member
    out_stride,
    shrunk_stride,
    split_stride,
    SLOT_STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    FEW: tl.constexpr,  # ranks of most adapters
    MORE: tl.constexpr,  # ranks whose sums still stay in registers
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    ALIGNED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    # All numbers are asked for before the first of them is examined: the compiler moves no load before a branch.
    tile, block = tl.program_id(0), tl.program_id(1)
    slot, first, count = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    member, start, stop = tl.load(blocks + block * 5), tl.load(blocks + block * 5 + 1), tl.load(blocks + block * 5 + 2)
    begin, end = tl.load(blocks + block * 5 + 3), tl.load(blocks + block * 5 + 4)
    if tl.load(used) == 0:
        return
    fields = slots + tl.minimum(slot, slot_count - 1) * SLOT_STRIDE + 2 + member * 5
    first_rank, rank, b_at = tl.load(fields), tl.load(fields + 1), tl.load(fields + 2)
    scale_at, shift_at = tl.load(fields + 3), tl.load(fields + 4)
    if (slot >= slot_count) | (rank + shift_at == 0):
        return
    if ALIGNED:
        start, stop = tl.multiple_of(start, 16), tl.multiple_of(stop, 16)
        begin, end = tl.multiple_of(begin, 16), tl.multiple_of(end, 16)
    target = out + first * out_stride
    source = shrunk + first * shrunk_stride + first_rank
    columns = start.to(tl.int32), stop.to(tl.int32), begin.to(tl.int32), end.to(tl.int32)
    addresses = b_at, scale_at, shift_at
    strides = out_stride, shrunk_stride, split_stride
    if (rank <= FEW) & (scale_at + shift_at == 0):
        _expand(
            *(target, source, count, rank, columns, addresses, strides),
            *(ROWS, FEW, True, False, BLOCK_N, STAGES, SPLITS, ALIGNED, WIDEN),
        )
    elif rank <= MORE:
        _expand(
            *(target, source, count, rank, columns, addresses, strides),
            *(ROWS, MORE, True, True, BLOCK_N // 2, STAGES - 1, SPLITS, ALIGNED, WIDEN),
        )
    else:
        _expand(
            *(target, source, count, rank, columns, addresses, strides),
            *(ROWS, FEW, False, True, BLOCK_N // 2, STAGES - 1, SPLITS, ALIGNED, WIDEN),
        )


@triton.jit
def _expand(  # type: ignore[no-untyped-def]
    target,  # the first row of `out`
    source,  # the first row of the first split, at the member's first rank
    count,
    rank,
    columns,  # first and last of the block, first and last of the member
    addresses,  # of B, scale and shift
    strides,  # of out, of a row and of a split of `source`
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    ONCE: tl.constexpr,  # all ranks fit in RANKS; otherwise they are summed again for each step
    AFFINE: tl.constexpr,  # there may be a scale or a shift
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    ALIGNED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    dtype: tl.constexpr = target.dtype.element_ty
    start, stop, begin, end = columns
    b, scale, shift = (
        _at(addresses[0], dtype, ALIGNED),
        _at(addresses[1], dtype, ALIGNED),
        _at(addresses[2], dtype, ALIGNED),
    )
    row, ranks = tl.arange(0, ROWS), tl.arange(0, RANKS)
    mine = (row < count)[:, None]
    at = row[:, None] * strides[1] + ranks[None, :]
    if ONCE:
        h = _sum_of_splits(source + at, strides[2], mine & (ranks < rank)[None, :], SPLITS, not AFFINE).to(dtype)
    for column in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
        n = column + tl.arange(0, BLOCK_N)
        there = n < stop
        own = n - begin
        places = target + (row[:, None] * strides[0] + n[None, :])
        y = tl.load(places, mask=mine & there[None, :], other=0.0)
        total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
        if ONCE:
            b_tile = _b_tile(b, ranks, rank, own, there, end - begin)
            total = dot(h, b_tile, total, WIDEN)
        else:
            for more in range(0, rank.to(tl.int32), RANKS):
                left = (more + ranks < rank)[None, :]
                h = _sum_of_splits(source + at + more, strides[2], mine & left, SPLITS, True).to(dtype)
                total = dot(h, _b_tile(b, more + ranks, rank, own, there, end - begin), total, WIDEN)
        y = y.to(tl.float32)
        if AFFINE:
            if addresses[1] != 0:
                y = y * tl.load(scale + own, mask=there, other=1.0)[None, :].to(tl.float32)
            if addresses[2] != 0:
                y = y + tl.load(shift + own, mask=there, other=0.0)[None, :].to(tl.float32)
        tl.store(places, (y + total).to(dtype), mask=mine & there[None, :])


@triton.jit
def _b_tile(b, ranks, rank, own, there, width):  # type: ignore[no-untyped-def]
    return tl.load(
        b + (ranks[:, None] * width + own[None, :]), mask=(ranks < rank)[:, None] & there[None, :], other=0.0
    )


@triton.jit
def _sum_of_splits(source, split_stride, mine, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the sum of the splits in their order. Read at once, none waits for the previous one, but all take
    registers."""
    if AT_ONCE:
        split = tl.arange(0, triton.next_power_of_2(SPLITS))[:, None, None]
        parts = tl.load(source[None] + split * split_stride, mask=(split < SPLITS) & mine[None], other=0.0)
        total = tl.sum(parts, axis=0)
    else:
        total = tl.load(source, mask=mine, other=0.0)
        for split in range(1, SPLITS):
            total += tl.load(source + split * split_stride, mask=mine, other=0.0)
    return total


def programs_per_tile(tiles: int, chunks: int) -> int:
    """Return the number of programs that share the chunks of ranks of a tile.

    If few programs run in total, there is one for each chunk. Otherwise there are as many as small adapters need, so
    that room for large ones in captured launches of many tiles costs no idle programs.
    """
    return max(1, min(chunks, max(_MIN_TILE_PROGRAMS, _PROGRAMS // max(1, tiles))))


def add_segments(table: SlotTable, out: Tensor, x: Tensor, work: WorkList) -> None:
    """Change the rows of `out` [rows, out] that are in the list in place, given `x` [rows, in]."""
    assert x.stride(1) == 1
    assert out.stride(1) == 1
    if table.is_used:
        for tiles, tiling in work:
            blocks = table.blocks(tiling.columns)
            _add(out, x, tiles, table.fields, table.used, blocks, table.widest, table.aligned, list(tiling))


@operator(
    "segmented_lora(Tensor(a!) out, Tensor x, Tensor tiles, Tensor slots, Tensor used, Tensor blocks, SymInt widest, "
    "bool aligned, SymInt[] tiling) -> ()",
    fake=no_output,
)
def _add(
    out: Tensor,
    x: Tensor,
    tiles: Tensor,
    slots: Tensor,
    used: Tensor,
    blocks: Tensor,
    widest: int,
    aligned: bool,
    tiling: Sequence[int],
) -> None:
    """Launch each kernel once; `widest` is the largest sum of ranks of a slot."""
    rows, ranks, block_k, max_splits, block_n, stages, _ = tiling
    splits = min(max_splits, triton.cdiv(x.shape[1], block_k))
    width = -(-widest // RANK_CHUNK) * RANK_CHUNK
    shrunk = torch.empty(splits, x.shape[0], max(width, 1), dtype=torch.float32, device=x.device)
    assert shrunk.numel() < 1 << 31, "programs count places in 32 bits"
    common = {
        "SLOT_STRIDE": slots.stride(0),
        "ROWS": rows,
        "SPLITS": splits,
        "WIDEN": widen(x.dtype),
        "ALIGNED": aligned,
    }
    tables = tiles, slots, slots.shape[0], used
    strides = shrunk.stride(1), shrunk.stride(0)
    if width:
        chunks = triton.cdiv(width, ranks)
        programs = programs_per_tile(tiles.shape[0] * splits, chunks)
        shrink_kernel[(tiles.shape[0], programs, splits)](
            *(x, shrunk, *tables, x.shape[1], x.stride(0), *strides),
            RANKS=ranks,
            BLOCK_K=block_k,
            LOOPS=programs < chunks,
            num_stages=stages,
            **common,
        )
    expand_kernel[(tiles.shape[0], blocks.shape[0])](
        *(out, shrunk, *tables, blocks, out.stride(0), *strides),
        FEW=_FEW_RANKS,
        MORE=_MORE_RANKS,
        BLOCK_N=block_n,
        STAGES=_EXPAND_STAGES,
        num_warps=_warps(rows, block_n),
        **common,
    )


def _warps(rows: int, block_n: int) -> int:
    """Return the warps of an expand program; more sums per thread would leave registers for too few programs."""
    return 8 if rows * block_n > _SUMS_OF_FOUR_WARPS else 4


def variants() -> Iterator[Variant]:
    """Return variants for every dtype that models are served in.

    They cover q, k and v of an 8B Llama at rank 16, with 16 rows of 16 adapters or 1,024 rows of one. bfloat16 has a
    program for each chunk of ranks; the others share chunks, which takes more registers.
    """
    inputs, widths, ranks = 4096, (4096, 1024, 1024), 48
    outputs = sum(widths)
    for dtype, size in (("bfloat16", 2), ("float16", 2), ("float32", 4)):
        tilings = {"bfloat16": TILINGS, "float16": (DECODE, PREFILL), "float32": (DECODE,)}[dtype]
        for tiling in tilings:  # float16 compiles like bfloat16; exact products have one tiling
            rows, adapters = (16, 16) if tiling.rows == DECODE.rows else (1024, 1)
            common = {
                "SLOT_STRIDE": SLOT_FIELDS + MEMBER_FIELDS * len(widths),
                "ROWS": tiling.rows,
                "SPLITS": tiling.splits,
                "ALIGNED": True,
                "WIDEN": False,
            }
            tables = {"tiles": POINTERS["int64"], "slots": POINTERS["int64"], "slot_count": "i32"}
            tables |= {"used": POINTERS["int64"]}
            strides = {"shrunk_stride": "i32", "split_stride": "i32"}
            scratch = 4 * rows * ranks * tiling.splits
            yield Variant(
                f"shrink {dtype} rows{tiling.rows} k{tiling.block_k} splits{tiling.splits}",
                shrink_kernel,
                {"x": POINTERS[dtype], "shrunk": POINTERS["float32"], **tables, "in_features": "i32", "x_stride": "i32"}
                | strides,
                common | {"RANKS": tiling.ranks, "BLOCK_K": tiling.block_k, "LOOPS": dtype != "bfloat16"},
                read_bytes=size * inputs * (rows + adapters * ranks),
                flops=2 * rows * inputs * ranks,
                loop_bytes=size * tiling.block_k * tiling.ranks,
                iterations=inputs // (tiling.block_k * tiling.splits),
                stages=tiling.stages,
                aligned=frozenset({"x", "shrunk", "in_features", "x_stride", "shrunk_stride", "split_stride"}),
            )
            yield Variant(
                f"expand {dtype} rows{tiling.rows} n{tiling.block_n} splits{tiling.splits}",
                expand_kernel,
                {"out": POINTERS[dtype], "shrunk": POINTERS["float32"], **tables}
                | {"blocks": POINTERS["int64"], "out_stride": "i32"}
                | strides,
                common
                | {"FEW": _FEW_RANKS, "MORE": _MORE_RANKS, "BLOCK_N": tiling.block_n}
                | {"STAGES": _EXPAND_STAGES},
                warps=_warps(tiling.rows, tiling.block_n),
                read_bytes=scratch + size * outputs * (2 * rows + adapters * ranks // len(widths)),
                flops=2 * rows * outputs * ranks // len(widths),
                loop_bytes=size * _FEW_RANKS * tiling.block_n,
                iterations=tiling.columns // tiling.block_n,
                stages=_EXPAND_STAGES,
                aligned=frozenset({"out", "shrunk", "out_stride", "shrunk_stride", "split_stride"}),
            )
