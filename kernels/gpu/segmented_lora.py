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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from loragate.kernels.gpu import DEPENDENT_LAUNCHES
from loragate.kernels.gpu.dot import widen
from loragate.kernels.gpu.ops import no_output, operator
from loragate.kernels.gpu.shrink_expand import expand_kernel, shrink_kernel
from loragate.kernels.gpu.side_stream import SideStream
from loragate.kernels.gpu.slot_tables import MEMBER_FIELDS, SLOT_FIELDS, SlotTable
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.segments import DECODE, PREFILL, TILINGS, Work, WorkList

RANK_CHUNK = 16
_FEW_RANKS, _MORE_RANKS = 16, 64  # of one member; expand's sums of so many ranks stay in registers
_PROGRAMS = 1024  # about the number of shrink programs that a GPU runs at once
_MIN_TILE_PROGRAMS = 4  # rank 16 on q, k and v takes three
_SUMS_OF_FOUR_WARPS = 4096  # 32 per thread
_EXPAND_STAGES = 4  # blocks of columns, of which all but one are in flight


def programs_per_tile(tiles: int, chunks: int) -> int:
    """Return the number of programs that share the chunks of ranks of a tile.

    If few programs run in total, there is one for each chunk. Otherwise there are as many as small adapters need, so
    that room for large ones in captured launches of many tiles costs no idle programs.
    """
    return max(1, min(chunks, max(_MIN_TILE_PROGRAMS, _PROGRAMS // max(1, tiles))))


def add_segments(table: SlotTable, out: Tensor, x: Tensor, work: WorkList, *, dependent: bool = False) -> None:
    """Change the rows of `out` [rows, out] that are in the list in place, given `x` [rows, in].

    If `dependent`, expand starts while shrink still runs, which the GPU must be able to: see `launches_dependents`.
    """
    for launches in _launches(table, x, work, dependent=dependent):
        launches.shrink()
        launches.expand(out)


def start_segments(table: SlotTable, x: Tensor, work: WorkList, beside: SideStream) -> Callable[[Tensor], None]:
    """Launch shrink beside what the current stream gets next. The function that is returned changes `out` after both;
    it must be called.

    The memory between the two belongs to the current stream: torch gives it to another tensor only behind expand.
    """
    launches = list(_launches(table, x, work, dependent=False))
    with beside.forked():
        for each in launches:
            each.shrink()

    def finish(out: Tensor) -> None:
        beside.join()
        for each in launches:
            each.expand(out)

    return finish


@dataclass(frozen=True, slots=True)
class _Launches:
    """Shrink and expand of one list of tiles, and the memory between them."""

    table: SlotTable
    x: Tensor
    work: Work
    shrunk: Tensor  # [splits, rows, ranks], float32
    dependent: bool

    def shrink(self) -> None:
        table, (tiles, tiling) = self.table, self.work
        if table.widest:
            tables = tiles, table.fields, table.used
            _shrink(self.shrunk, self.x, *tables, table.aligned, list(tiling), self.dependent)

    def expand(self, out: Tensor) -> None:
        assert out.stride(1) == 1
        table, (tiles, tiling) = self.table, self.work
        tables = tiles, table.fields, table.used, table.blocks(tiling.columns)
        # after shrink alone: what precedes it is not known
        _expand(out, self.shrunk, *tables, table.aligned, list(tiling), self.dependent and table.widest > 0)


def _launches(table: SlotTable, x: Tensor, work: WorkList, *, dependent: bool) -> Iterator[_Launches]:
    assert x.stride(1) == 1
    if table.is_used:
        for each in work:
            splits = min(each.tiling.splits, triton.cdiv(x.shape[1], each.tiling.block_k))
            width = max(1, triton.cdiv(table.widest, RANK_CHUNK) * RANK_CHUNK)
            shrunk = torch.empty(splits, x.shape[0], width, dtype=torch.float32, device=x.device)
            assert shrunk.numel() < 1 << 31, "programs count places in 32 bits"
            yield _Launches(table, x, each, shrunk, dependent)


@operator(
    "lora_shrink(Tensor(a!) shrunk, Tensor x, Tensor tiles, Tensor slots, Tensor used, bool aligned, "
    "SymInt[] tiling, bool dependent) -> ()",
    fake=no_output,
)
def _shrink(
    shrunk: Tensor,
    x: Tensor,
    tiles: Tensor,
    slots: Tensor,
    used: Tensor,
    aligned: bool,
    tiling: Sequence[int],
    dependent: bool,
) -> None:
    rows, ranks, block_k, _, _, stages, _ = tiling
    splits, _, width = shrunk.shape
    chunks = triton.cdiv(width, ranks)
    programs = programs_per_tile(tiles.shape[0] * splits, chunks)
    shrink_kernel[(tiles.shape[0], programs, splits)](
        *(x, shrunk, tiles, slots, slots.shape[0], used, x.shape[1], x.stride(0), shrunk.stride(1), shrunk.stride(0)),
        RANKS=ranks,
        BLOCK_K=block_k,
        LOOPS=programs < chunks,
        num_stages=stages,
        **_constants(shrunk, x, slots, aligned=aligned, rows=rows, dependent=dependent),
    )


@operator(
    "lora_expand(Tensor(a!) out, Tensor shrunk, Tensor tiles, Tensor slots, Tensor used, Tensor blocks, "
    "bool aligned, SymInt[] tiling, bool dependent) -> ()",
    fake=no_output,
)
def _expand(
    out: Tensor,
    shrunk: Tensor,
    tiles: Tensor,
    slots: Tensor,
    used: Tensor,
    blocks: Tensor,
    aligned: bool,
    tiling: Sequence[int],
    dependent: bool,
) -> None:
    rows, _, _, _, block_n, _, _ = tiling
    expand_kernel[(tiles.shape[0], blocks.shape[0])](
        *(out, shrunk, tiles, slots, slots.shape[0], used, blocks, out.stride(0), shrunk.stride(1), shrunk.stride(0)),
        FEW=_FEW_RANKS,
        MORE=_MORE_RANKS,
        BLOCK_N=block_n,
        STAGES=_EXPAND_STAGES,
        num_warps=_warps(rows, block_n),
        launch_pdl=dependent,
        **_constants(shrunk, out, slots, aligned=aligned, rows=rows, dependent=dependent),
    )


def _constants(
    shrunk: Tensor, numbers: Tensor, slots: Tensor, *, aligned: bool, rows: int, dependent: bool
) -> dict[str, object]:
    """Return the constants that both kernels have."""
    return {
        "SLOT_STRIDE": slots.stride(0),
        "ROWS": rows,
        "SPLITS": shrunk.shape[0],
        "WIDEN": widen(numbers.dtype),
        "ALIGNED": aligned,
        "DEPENDENT": dependent,
    }


def _warps(rows: int, block_n: int) -> int:
    """Return the warps of an expand program; more sums per thread would leave registers for too few programs."""
    return 8 if rows * block_n > _SUMS_OF_FOUR_WARPS else 4


def variants() -> Iterator[Variant]:
    """Return variants for every dtype that models are served in.

    They cover q, k and v of an 8B Llama at rank 16, with 16 rows of 16 adapters or 1,024 rows of one. bfloat16 has a
    program for each chunk of ranks; the others share chunks, which takes more registers. The tilings that are served
    come with dependent launches too.
    """
    inputs, widths, ranks = 4096, (4096, 1024, 1024), 48
    outputs = sum(widths)
    for dtype, size in (("bfloat16", 2), ("float16", 2), ("float32", 4)):
        tilings = {"bfloat16": TILINGS, "float16": (DECODE, PREFILL), "float32": (DECODE,)}[dtype]
        dependent = {"bfloat16": (DECODE, PREFILL), "float16": (), "float32": (DECODE,)}[dtype]
        # float16 compiles like bfloat16; exact products have one tiling
        for tiling, waits in [*((each, False) for each in tilings), *((each, True) for each in dependent)]:
            kind = f"{dtype} dependent" if waits else dtype
            rows, adapters = (16, 16) if tiling.rows == DECODE.rows else (1024, 1)
            common = {
                "SLOT_STRIDE": SLOT_FIELDS + MEMBER_FIELDS * len(widths),
                "ROWS": tiling.rows,
                "SPLITS": tiling.splits,
                "ALIGNED": True,
                "WIDEN": False,
                "DEPENDENT": waits,
            }
            tables = {"tiles": POINTERS["int64"], "slots": POINTERS["int64"], "slot_count": "i32"}
            tables |= {"used": POINTERS["int64"]}
            strides = {"shrunk_stride": "i32", "split_stride": "i32"}
            scratch = 4 * rows * ranks * tiling.splits
            yield Variant(
                f"shrink {kind} rows{tiling.rows} k{tiling.block_k} splits{tiling.splits}",
                shrink_kernel,
                {"x": POINTERS[dtype], "shrunk": POINTERS["float32"], **tables, "in_features": "i32", "x_stride": "i32"}
                | strides,
                common | {"RANKS": tiling.ranks, "BLOCK_K": tiling.block_k, "LOOPS": dtype != "bfloat16"},
                read_bytes=size * inputs * (rows + adapters * ranks),
                flops=2 * rows * inputs * ranks,
                loop_bytes=size * tiling.block_k * tiling.ranks,
                iterations=inputs // (tiling.block_k * tiling.splits),
                stages=tiling.stages,
                min_arch=DEPENDENT_LAUNCHES if waits else 0,
                aligned=frozenset({"x", "shrunk", "in_features", "x_stride", "shrunk_stride", "split_stride"}),
            )
            yield Variant(
                f"expand {kind} rows{tiling.rows} n{tiling.block_n} splits{tiling.splits}",
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
                min_arch=DEPENDENT_LAUNCHES if waits else 0,
                aligned=frozenset({"out", "shrunk", "out_stride", "shrunk_stride", "split_stride"}),
            )
