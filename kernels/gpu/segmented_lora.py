"""Segmented LoRA in two launches a fused module, whatever the adapters' ranks.

The gathered products are Punica's and S-LoRA's (Chen et al., 2023, arXiv:2310.18547, section 4; Sheng et al., 2023,
arXiv:2311.03285, section 5). Rows come sorted by slot, and the work is a flat list of tiles: up to 16 rows of one slot.
*Shrink* multiplies a tile with 16 ranks of its A; *expand* takes a tile's ranks, 16 at a time, to some columns of one
target module, and makes there what else the adapter changes: out · scale + shift. Ranks are read when a program runs:
one launch serves all of them, and a program whose ranks or module its adapter does not have ends at once.

No two programs write to the same number, and each sums in an order of its own that the neighbours have no part in: a
row's result is the same in any batch, to the last bit. Rows of no adapter are in no tile.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.base_output import Affine
from loragate.kernels.gpu.dot import dot, widen
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.segmented_lora import LoraWeights, Segment

TILE_ROWS = 16
RANK_CHUNK = 16
_TILE_FIELDS = 3  # slot, first row, rows
_BLOCK_FIELDS = 4  # member, first column of the block, first and last column of the member
_MEMBER_FIELDS = 5  # first rank, ranks, addresses of B, scale and shift; 0 stands for none
_SLOT_FIELDS = 2  # address of A, ranks of all members; then the members' fields


class Tiling(NamedTuple):
    """How a launch divides its work; a choice of speed, and of the order in which shrink sums."""

    block_k: int = 128  # inputs that a program of shrink takes at a time
    splits: int = 4  # programs that share the inputs of a tile
    block_n: int = 128  # columns of a program of expand


_USUAL = Tiling()
TILINGS = (_USUAL, Tiling(256, 2, 256), Tiling(128, 8, 64), Tiling(64, 1, 32))


@triton.jit
def shrink_kernel(  # type: ignore[no-untyped-def]
    x,  # [rows, in_features]
    shrunk,  # [SPLITS, rows, shrunk_stride], float32
    tiles,  # [tiles, 3]
    slots,  # [slot_count, SLOT_FIELDS]
    slot_count,
    in_features,
    x_stride,
    shrunk_stride,
    split_stride,
    SLOT_FIELDS: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tile, chunk, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(tiles + tile * 3)
    if slot >= slot_count:
        return
    rank = tl.load(slots + slot * SLOT_FIELDS + 1)
    if chunk * RANKS >= rank:
        return
    a = tl.load(slots + slot * SLOT_FIELDS).to(tl.pointer_type(x.dtype.element_ty))
    first, count = tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    row = tl.arange(0, ROWS)
    ranks = chunk * RANKS + tl.arange(0, RANKS)
    total = tl.zeros((ROWS, RANKS), dtype=tl.float32)
    for start in range(split * BLOCK_K, in_features, SPLITS * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x_tile = tl.load(
            x + (first + row)[:, None] * x_stride + k[None, :],
            mask=(row < count)[:, None] & (k < in_features)[None, :],
            other=0.0,
        )
        a_tile = tl.load(
            a + ranks[None, :] * in_features + k[:, None],
            mask=(ranks < rank)[None, :] & (k < in_features)[:, None],
            other=0.0,
        )
        total = dot(x_tile, a_tile, total, WIDEN)
    tl.store(
        shrunk + split * split_stride + (first + row)[:, None] * shrunk_stride + ranks[None, :],
        total,
        mask=(row < count)[:, None] & (ranks < rank)[None, :],
    )


@triton.jit
def expand_kernel(  # type: ignore[no-untyped-def]
    out,  # [rows, out_features], changed in place
    shrunk,  # [SPLITS, rows, shrunk_stride], float32
    tiles,  # [tiles, 3]
    slots,  # [slot_count, SLOT_FIELDS]
    slot_count,
    blocks,  # [blocks, 4]
    out_stride,
    shrunk_stride,
    split_stride,
    SLOT_FIELDS: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tile, block = tl.program_id(0), tl.program_id(1)
    slot = tl.load(tiles + tile * 3)
    if slot >= slot_count:
        return
    member = tl.load(blocks + block * 4)
    fields = slots + slot * SLOT_FIELDS + 2 + member * 5
    first_rank, rank, b_at = tl.load(fields), tl.load(fields + 1), tl.load(fields + 2)
    scale_at, shift_at = tl.load(fields + 3), tl.load(fields + 4)
    if rank + shift_at == 0:
        return
    first, count = tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    begin, end = tl.load(blocks + block * 4 + 2), tl.load(blocks + block * 4 + 3)
    row = tl.arange(0, ROWS)
    column = tl.load(blocks + block * 4 + 1) + tl.arange(0, BLOCK_N)
    own = column - begin
    there = column < end
    b = b_at.to(tl.pointer_type(out.dtype.element_ty))
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for start in range(0, rank, RANKS):
        ranks = start + tl.arange(0, RANKS)
        at = shrunk + (first + row)[:, None] * shrunk_stride + (first_rank + ranks)[None, :]
        wanted = (row < count)[:, None] & (ranks < rank)[None, :]
        h = tl.load(at, mask=wanted, other=0.0)
        for split in range(1, SPLITS):
            h += tl.load(at + split * split_stride, mask=wanted, other=0.0)
        b_tile = tl.load(
            b + ranks[:, None] * (end - begin) + own[None, :],
            mask=(ranks < rank)[:, None] & there[None, :],
            other=0.0,
        )
        total = dot(h.to(b_tile.dtype), b_tile, total, WIDEN)
    target = out + (first + row)[:, None] * out_stride + column[None, :]
    wanted = (row < count)[:, None] & there[None, :]
    y = tl.load(target, mask=wanted, other=0.0).to(tl.float32)
    if scale_at != 0:
        scale = tl.load(scale_at.to(tl.pointer_type(out.dtype.element_ty)) + own, mask=there, other=1.0)
        y = y * scale[None, :].to(tl.float32)
    if shift_at != 0:
        shift = tl.load(shift_at.to(tl.pointer_type(out.dtype.element_ty)) + own, mask=there, other=0.0)
        y = y + shift[None, :].to(tl.float32)
    tl.store(target, (y + total).to(out.dtype.element_ty), mask=wanted)


@dataclass(frozen=True, slots=True)
class WorkList:
    """The tiles of one composition of the batch, which all modules share: [tiles, 3], slot, first row, rows."""

    tiles: Tensor
    count: int

    @classmethod
    def of(cls, segments: Iterable["Segment"], device: torch.device) -> "WorkList":
        tiles = [
            (segment.slot, start, min(TILE_ROWS, segment.stop - start))
            for segment in segments
            for start in range(segment.start, segment.stop, TILE_ROWS)
        ]
        return cls(torch.tensor(tiles, dtype=torch.int64).to(device, non_blocking=True), len(tiles))


_REMEMBERED = 8
_recent: list[tuple[tuple["Segment", ...], torch.device, WorkList]] = []


def work_list(segments: tuple["Segment", ...], device: torch.device) -> WorkList:
    """Of the identical tuple, the identical list: all modules of a step ask for the same ones."""
    for known, where, work in _recent:
        if known is segments and where == device:
            return work
    work = WorkList.of(segments, device)
    _recent[: -_REMEMBERED + 1] = []
    _recent.append((segments, device, work))
    return work


class SlotTable:
    """Where the weights of one fused module's adapters lie on the device, by slot.

    `widths` are the outputs of its members.
    """

    def __init__(self, widths: Sequence[int], in_features: int, device: torch.device) -> None:
        self.in_features, self.out_features, self.device = in_features, sum(widths), device
        self._starts = [sum(widths[:i]) for i in range(len(widths))]
        self._widths = tuple(widths)
        self._fields = torch.zeros(1, _SLOT_FIELDS + _MEMBER_FIELDS * len(widths), dtype=torch.int64, device=device)
        self._ranks: dict[int, int] = {}
        self._blocks: dict[int, Tensor] = {}

    def put(self, slot: int, weights: "LoraWeights") -> None:
        """What stands there is read by launches from now on; the caller keeps the weights alive."""
        members = [[0] * _MEMBER_FIELDS for _ in self._widths]
        for expand in weights.expands:
            members[self._starts.index(expand.out_start)][:3] = [
                expand.rank_start,
                expand.b.shape[0],
                expand.b.data_ptr(),
            ]
        for change in weights.base_changes:
            if isinstance(change, Affine):
                self._put_affine(members, change)
        missing = slot + 1 - self._fields.shape[0]
        if missing > 0:
            self._fields = F.pad(self._fields, (0, 0, 0, missing))
        fields = [weights.a.data_ptr(), weights.rank, *(number for member in members for number in member)]
        self._fields[slot] = torch.tensor(fields, dtype=torch.int64)
        self._ranks[slot] = weights.rank

    def clear(self, slot: int) -> None:
        if self._ranks.pop(slot, None) is not None:
            self._fields[slot] = 0

    def add(self, out: Tensor, x: Tensor, work: WorkList, tiling: Tiling = _USUAL) -> None:
        """Change the rows of `out` [rows, out] that are in the list, given `x` [rows, in], in place."""
        if not work.count or not self._ranks:
            return
        assert x.stride(1) == 1
        assert out.stride(1) == 1
        widest = max(self._ranks.values())
        width = -(-widest // RANK_CHUNK) * RANK_CHUNK
        shrunk = torch.empty(tiling.splits, x.shape[0], max(width, 1), dtype=torch.float32, device=x.device)
        common: dict[str, Any] = {
            "SLOT_FIELDS": self._fields.shape[1],
            "ROWS": TILE_ROWS,
            "RANKS": RANK_CHUNK,
            "SPLITS": tiling.splits,
            "WIDEN": widen(x.dtype),
        }
        tables = work.tiles, self._fields, self._fields.shape[0]
        strides = shrunk.stride(1), shrunk.stride(0)
        if width:
            shrink_kernel[(work.count, width // RANK_CHUNK, tiling.splits)](
                *(x, shrunk, *tables, self.in_features, x.stride(0), *strides), BLOCK_K=tiling.block_k, **common
            )
        blocks = self._blocks_of(tiling.block_n)
        expand_kernel[(work.count, blocks.shape[0])](
            *(out, shrunk, *tables, blocks, out.stride(0), *strides), BLOCK_N=tiling.block_n, **common
        )

    def _put_affine(self, members: list[list[int]], change: Affine) -> None:
        """An affine change spans members; each gets the address of its own part."""
        item = change.shift.element_size()
        for member, start, width in zip(members, self._starts, self._widths, strict=True):
            offset = start - change.out_start
            if 0 <= offset < change.shift.shape[0]:
                assert offset + width <= change.shift.shape[0]
                member[4] = change.shift.data_ptr() + offset * item
                member[3] = 0 if change.scale is None else change.scale.data_ptr() + offset * item

    def _blocks_of(self, size: int) -> Tensor:
        """Columns in blocks that lie within one member each."""
        if size not in self._blocks:
            rows = [
                (member, column, start, start + width)
                for member, (start, width) in enumerate(zip(self._starts, self._widths, strict=True))
                for column in range(start, start + width, size)
            ]
            self._blocks[size] = torch.tensor(rows, dtype=torch.int64, device=self._fields.device)
        return self._blocks[size]


def variants() -> Iterator[Variant]:
    """Every type that models are served in, at 16 rows of as many adapters of rank 16 on q, k and v of an 8B Llama."""
    inputs, widths, rows, ranks = 4096, (4096, 1024, 1024), 16, 48
    outputs = sum(widths)
    for dtype, size in (("bfloat16", 2), ("float16", 2), ("float32", 4)):
        for tiling in TILINGS:
            common = {
                "SLOT_FIELDS": _SLOT_FIELDS + _MEMBER_FIELDS * len(widths),
                "ROWS": TILE_ROWS,
                "RANKS": RANK_CHUNK,
                "SPLITS": tiling.splits,
                "WIDEN": False,
            }
            tables = {"tiles": POINTERS["int64"], "slots": POINTERS["int64"], "slot_count": "i32"}
            strides = {"shrunk_stride": "i32", "split_stride": "i32"}
            scratch = 4 * rows * ranks * tiling.splits
            yield Variant(
                f"shrink {dtype} k{tiling.block_k} splits{tiling.splits}",
                shrink_kernel,
                {"x": POINTERS[dtype], "shrunk": POINTERS["float32"], **tables, "in_features": "i32", "x_stride": "i32"}
                | strides,
                common | {"BLOCK_K": tiling.block_k},
                read_bytes=size * rows * inputs * (1 + ranks),
                flops=2 * rows * inputs * ranks,
                aligned=frozenset({"x", "shrunk", "in_features", "x_stride", "shrunk_stride", "split_stride"}),
            )
            yield Variant(
                f"expand {dtype} n{tiling.block_n} splits{tiling.splits}",
                expand_kernel,
                {"out": POINTERS[dtype], "shrunk": POINTERS["float32"], **tables}
                | {"blocks": POINTERS["int64"], "out_stride": "i32"}
                | strides,
                common | {"BLOCK_N": tiling.block_n},
                read_bytes=scratch + size * rows * (outputs + outputs * ranks // len(widths)),
                flops=2 * rows * outputs * ranks // len(widths),
                aligned=frozenset({"out", "shrunk", "out_stride", "shrunk_stride", "split_stride"}),
            )
