"""The linears of a mixture's experts: one launch for all experts, and a table of each adapter's factors per expert.

Grouped products follow MegaBlocks (Gale et al., 2023, arXiv:2211.15841, section 5). Routed rows are sorted by expert,
then by adapter slot; a tile is a few rows of one expert. The low-rank products are those of `segmented_lora`: an
adapter occupies as many places of its table as there are experts, and a tile there is a few rows of one adapter at one
expert.

Sorting, and lists of tiles of their maximum length, happen on the device from the router's choice, so the host never
waits for it. Programs of unused tiles end at once. Every row goes through tiles of the same shape,
regardless of their number, and no two programs add to the same sum: a row's result is the same in any batch, to the
last bit.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.dot import dot, widen
from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.gpu.slot_tables import SlotTable
from loragate.kernels.gpu.variant import POINTERS, Variant
from loragate.kernels.identity_cache import IdentityCache
from loragate.kernels.segments import DECODE, UNUSED_SLOT, Work, WorkList

if TYPE_CHECKING:
    from loragate.kernels.expert_weights import ExpertFactors
    from loragate.kernels.segments import Segment, Segments


class GroupedTiling(NamedTuple):
    """Division of a launch into programs; it affects speed only."""

    rows: int = 64  # maximum rows of a tile; tensor cores compute a full tile as fast as one row
    block_n: int = 64  # columns of a program
    block_k: int = 64  # inputs that it takes at a time


HALVES = GroupedTiling()
FLOATS = GroupedTiling(rows=16, block_k=32)  # exact products, row by row
HALF_TILINGS = HALVES, GroupedTiling(block_n=128)


@triton.jit
def grouped_kernel(  # type: ignore[no-untyped-def]
    x,  # [rows, in_features]
    weights,  # [experts, out_features, in_features], strided
    biases,  # [experts, out_features], or None
    out,  # [rows, out_features]
    tiles,  # [tiles, 3]: expert, first row, rows
    experts,
    in_features,
    out_features,
    x_stride,
    expert_stride,
    n_stride,
    k_stride,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tile, block = tl.program_id(0), tl.program_id(1)
    expert = tl.load(tiles + tile * 3)
    if expert >= experts:
        return
    first, count = tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    row = tl.arange(0, ROWS)
    column = block * BLOCK_N + tl.arange(0, BLOCK_N)
    there = column < out_features
    own = weights + expert * expert_stride
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for start in range(0, in_features, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x_tile = tl.load(
            x + (first + row)[:, None] * x_stride + k[None, :],
            mask=(row < count)[:, None] & (k < in_features)[None, :],
            other=0.0,
        )
        w_tile = tl.load(
            own + column[None, :] * n_stride + k[:, None] * k_stride,
            mask=there[None, :] & (k < in_features)[:, None],
            other=0.0,
        )
        total = dot(x_tile, w_tile, total, WIDEN)
    if biases is not None:
        bias = tl.load(biases + expert * out_features + column, mask=there, other=0.0)
        total += bias[None, :].to(tl.float32)
    tl.store(
        out + (first + row)[:, None] * out_features + column[None, :],
        total.to(out.dtype.element_ty),
        mask=(row < count)[:, None] & there[None, :],
    )


class ExpertTiles(NamedTuple):
    """The work of the launches for one routing."""

    by_expert: Tensor  # [tiles, 3]: expert, first row, rows
    by_adapter: WorkList  # slots are places of `ExpertSlots`


def tiling_for(dtype: torch.dtype) -> GroupedTiling:
    return FLOATS if dtype == torch.float32 else HALVES


class Owners(NamedTuple):
    """The owner of each row of the batch: its slot + 1, or 0 for the base model alone.

    `kinds` counts the distinct owners, and `largest` is the highest one.
    """

    by_row: Tensor  # [rows]
    kinds: int
    largest: int

    @classmethod
    def from_segments(cls, segments: Sequence["Segment"], rows: int, device: torch.device) -> "Owners":
        by_row = torch.zeros(rows, dtype=torch.int32)
        for segment in segments:
            by_row[segment.start : segment.stop] = segment.slot + 1
        slots = {segment.slot for segment in segments}
        return cls(by_row.to(device, non_blocking=True), len(slots) + 1, max(slots) + 1)


_recent: IdentityCache[Owners] = IdentityCache()


def route_on_device(
    chosen: Tensor, segments: "Segments", experts: int, rows: int, slots: int = 0
) -> tuple[Tensor, ExpertTiles]:
    """Sort the choice of experts, `chosen` [rows, top_k], by expert and slot.

    Returns places in the flattened choice [routed], and their tiles, of at most `rows` rows by expert. Fixed segments
    have slots below `slots`.
    """
    flat = chosen.reshape(-1).int()
    if segments == ():
        found, order = flat.sort(stable=True)
        return order, ExpertTiles(_tiles(found, rows, experts), ())
    where = chosen.shape[0], chosen.device
    if isinstance(segments, tuple):
        owners = _recent.get(segments, where, lambda: Owners.from_segments(segments, *where))
    else:
        owners = Owners((segments.slots + 1).int(), min(slots, chosen.shape[0]) + 1, slots)
    keys, order = (flat * (owners.largest + 1) + owners.by_row.repeat_interleave(chosen.shape[1])).sort(stable=True)
    expert, slot = keys // (owners.largest + 1), keys % (owners.largest + 1) - 1
    places = torch.where(slot < 0, UNUSED_SLOT, slot * experts + expert)
    work = Work(_tiles(places, DECODE.rows, experts * owners.kinds), DECODE)
    return order, ExpertTiles(_tiles(expert, rows, experts), (work,))


def _tiles(owners: Tensor, size: int, runs: int) -> Tensor:
    """Cut runs of equal `owners` [rows], at most `runs` of them, into tiles of at most `size` rows.

    Returns [maximum number of tiles, 3] of owner, first row and rows. The owner of an unneeded tile is UNUSED_SLOT.
    """
    rows = owners.shape[0]
    if not rows:
        return owners.new_zeros(0, 3, dtype=torch.int64)
    max_tiles = min(rows, rows // size + runs)
    place = torch.arange(rows, device=owners.device)
    differs = torch.ones(rows, dtype=torch.bool, device=owners.device)
    torch.ne(owners[1:], owners[:-1], out=differs[1:])
    begins = (place - torch.where(differs, place, 0).cummax(0).values) % size == 0
    number = torch.where(begins, begins.cumsum(0) - 1, max_tiles)
    edges = torch.full((max_tiles + 1,), rows, device=owners.device)
    edges.scatter_(0, number, torch.where(begins, place, rows))
    start, stop = edges[:-1], edges[1:]
    owner = torch.where(start < rows, owners[start.clamp(max=rows - 1)], UNUSED_SLOT)
    return torch.stack([owner, start, stop - start], dim=1)


class ExpertSlots:
    """Device addresses of the factors of one stacked parameter's adapters, by slot and expert."""

    def __init__(self, experts: int, in_features: int, out_features: int, like: Tensor) -> None:
        self._in, self._out = in_features, out_features
        self._experts = np.arange(experts)
        self.table = SlotTable((out_features,), in_features, like.dtype, like.device, places=experts)

    def put(self, slot: int, factors: "ExpertFactors") -> None:
        """Register the factors for all launches from now on; the caller keeps them alive."""
        a, b, rank = factors.a, factors.b, factors.a.shape[1]
        fields = np.zeros((len(self._experts), self.table.width), dtype=np.int64)  # Python's lists would delay the step
        fields[:, [1, 3]] = rank
        for column, tensor, width in ((0, a, self._in), (4, b, self._out)):
            fields[:, column] = tensor.data_ptr() + self._experts * (rank * width * tensor.element_size())
        self.table.put_fields(slot, fields, rank)

    def reserve(self, slots: int, rank: int) -> None:
        """Reserve entries as `SlotTable.reserve` does."""
        self.table.reserve(slots, rank)

    def clear(self, slot: int) -> None:
        self.table.clear(slot)

    def add(self, out: Tensor, x: Tensor, work: WorkList) -> None:
        """Change the rows of `out` [routed, out] that are in the list in place, given `x` [routed, in]."""
        add_segments(self.table, out, x, work)


def grouped_linear(
    x: Tensor, weights: Tensor, biases: Tensor | None, tiles: Tensor, tiling: GroupedTiling | None = None
) -> Tensor:
    """Compute x [routed, in], sorted by expert, with weights [experts, out, in] of any strides → [routed, out].

    biases are [experts, out] or None. Tiles have as many rows as the tiling.
    """
    out: Tensor = _grouped(x, weights, biases, tiles, list(tiling or tiling_for(x.dtype)))
    return out


@operator(
    "grouped_linear(Tensor x, Tensor weights, Tensor? biases, Tensor tiles, SymInt[] tiling) -> Tensor",
    fake=lambda x, weights, *_: x.new_empty(x.shape[0], weights.shape[1]),
)
def _grouped(x: Tensor, weights: Tensor, biases: Tensor | None, tiles: Tensor, tiling: Sequence[int]) -> Tensor:
    assert x.stride(1) == 1
    experts, outputs, inputs = weights.shape
    rows, block_n, block_k = tiling
    out = torch.empty(x.shape[0], outputs, dtype=x.dtype, device=x.device)
    grouped_kernel[(tiles.shape[0], triton.cdiv(outputs, block_n))](
        *(x, weights, biases, out, tiles, experts, inputs, outputs, x.stride(0), *weights.stride()),
        ROWS=rows,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=widen(x.dtype),
    )
    return out


def variants() -> Iterator[Variant]:
    """Return variants for both layouts in which models are stored.

    They are those of the up projections of Qwen3 30B-A3B: 64 rows at 8 experts each, all of which are reached. The
    low-rank products are those of `segmented_lora`.
    """
    experts, inputs, outputs, routed = 128, 2048, 1536, 512
    sizes = dict.fromkeys(("experts", "in_features", "out_features", "x_stride", "expert_stride"), "i32")
    for dtype, size, tilings in (("bfloat16", 2, HALF_TILINGS), ("float16", 2, (HALVES,)), ("float32", 4, (FLOATS,))):
        for tiling in tilings:
            for layout, other, biased in (("k_stride", "n_stride", False), ("n_stride", "k_stride", True)):
                tensors = dict.fromkeys(("x", "weights", *(["biases"] if biased else []), "out"), POINTERS[dtype])
                yield Variant(
                    f"experts {dtype} rows{tiling.rows} n{tiling.block_n} {'inputs' if biased else 'outputs'} first",
                    grouped_kernel,
                    tensors | {"tiles": POINTERS["int64"], other: "i32"} | sizes,
                    {"ROWS": tiling.rows, "BLOCK_N": tiling.block_n, "BLOCK_K": tiling.block_k, "WIDEN": False}
                    | {layout: 1}
                    | ({} if biased else {"biases": None}),
                    read_bytes=size * (experts * inputs * outputs + routed * (inputs + outputs)),
                    flops=2 * routed * inputs * outputs,
                    loop_bytes=size * tiling.block_n * tiling.block_k,
                    iterations=inputs // tiling.block_k,
                    aligned=frozenset({*tensors, *sizes, other} - {"experts"}),
                )
