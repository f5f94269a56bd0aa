"""The two kernels of segmented LoRA (see `segmented_lora`): shrink, then expand.

If DEPENDENT, expand starts while shrink still runs (CUDA C++ Programming Guide, "Programmatic Dependent Launch and
Synchronization"): as soon as each program of shrink has ended or called `gdc_launch_dependents`. `gdc_wait` then waits
until shrink has ended and all that it wrote can be seen.

- Before it waits, expand reads tables and weights alone, and writes nothing. Shrink is launched normally, so everything
  before it in the stream, copies to these tables too, had ended when its first program started, and shrink writes to
  `shrunk` alone. In a captured graph only the edge between the two is programmatic.
- Each program of expand waits before it ends. What follows, in the stream or by an edge of a graph, waits for expand
  only: if expand could end first, it would run beside shrink, and could be given the memory that shrink writes to.
"""

import triton
import triton.language as tl

from loragate.kernels.gpu.dot import dot

_CACHE_LINE = tl.constexpr(128)  # bytes


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
    DEPENDENT: tl.constexpr,  # expand may start before this has ended
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
            _shrink(
                *(source, mine, a, ranks, rank, target, split, in_features),
                *(ROWS, RANKS, BLOCK_K, SPLITS, WIDEN, DEPENDENT),
            )
    else:
        ranks = turn * RANKS + tl.arange(0, RANKS)
        _shrink(
            *(source, mine, a, ranks, rank, target, split, in_features),
            *(ROWS, RANKS, BLOCK_K, SPLITS, WIDEN, DEPENDENT),
        )


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
    DEPENDENT: tl.constexpr,
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
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
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
    DEPENDENT: tl.constexpr,  # may start before shrink has ended
):
    # All numbers are asked for before the first of them is examined: the compiler moves no load before a branch.
    tile, block = tl.program_id(0), tl.program_id(1)
    slot, first, count = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    member, start, stop = tl.load(blocks + block * 5), tl.load(blocks + block * 5 + 1), tl.load(blocks + block * 5 + 2)
    begin, end = tl.load(blocks + block * 5 + 3), tl.load(blocks + block * 5 + 4)
    if tl.load(used) == 0:
        if DEPENDENT:
            tl.extra.cuda.gdc_wait()
        return
    fields = slots + tl.minimum(slot, slot_count - 1) * SLOT_STRIDE + 2 + member * 5
    first_rank, rank, b_at = tl.load(fields), tl.load(fields + 1), tl.load(fields + 2)
    scale_at, shift_at = tl.load(fields + 3), tl.load(fields + 4)
    if DEPENDENT:
        ranks_there = tl.where(slot < slot_count, rank, 0)
        _prefetch(
            b_at, ranks_there, start - begin, stop - begin, end - begin, out.dtype.element_ty, FEW, BLOCK_N, STAGES
        )
        tl.extra.cuda.gdc_wait()
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
def _prefetch(  # type: ignore[no-untyped-def]
    b_at,  # address
    rank,
    start,  # columns of B
    stop,
    width,
    dtype: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Ask for the first blocks of B in the L2 cache, as many as the loop keeps in flight, a cache line at a time."""
    itemsize: tl.constexpr = dtype.primitive_bitwidth // 8
    numbers: tl.constexpr = _CACHE_LINE // itemsize
    ranks = tl.arange(0, RANKS)[:, None]
    columns = start + numbers * tl.arange(0, STAGES * BLOCK_N // numbers)[None, :]
    tl.inline_asm_elementwise(
        "{ .reg .pred there; setp.ne.s32 there, $2, 0; @there prefetch.global.L2 [$1]; } // no result: $0",
        "=r,l,r",
        [b_at + (ranks * width + columns) * itemsize, ((ranks < rank) & (columns < stop)).to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
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
