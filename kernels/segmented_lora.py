"""Segmented LoRA: every row of a packed batch gets the low-rank update of its own adapter.

The computation is that of S-LoRA and Punica (Sheng et al., 2023, arXiv:2311.03285, section 5; Chen et al., 2023,
arXiv:2310.18547, section 4): rows are sorted by adapter slot, and each run of equal slots is one segment. An adapter's
changes to the base output itself (`base_output`) come first.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from loragate.kernels import cpu, gpu
from loragate.kernels.base_output import Affine
from loragate.kernels.gpu.side_stream import SideStream
from loragate.kernels.lora_weights import LoraWeights
from loragate.kernels.segments import FixedSegments, Segment, Segments, WorkList

if cpu.available():
    from loragate.kernels.cpu.low_rank import LowRankRows
if gpu.available():
    from loragate.kernels.gpu.segmented_lora import add_segments, start_segments
    from loragate.kernels.gpu.slot_tables import SlotMemory, SlotTable
    from loragate.kernels.segments import work_list


Finish = Callable[[Tensor], None]
"""Adds to an output what was started for it."""


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """How a GPU computes the products. None of this has been measured on one."""

    gemm_rows: int = 0  # minimum rows of a segment whose products are matmuls, unless segments are fixed; 0: none
    dependent_launch: bool = False  # expand starts while shrink still runs, see `shrink_expand`
    beside: SideStream | None = None  # for shrink, beside the base product

    @property
    def matmuls_from(self) -> float:
        return self.gemm_rows or math.inf


DEFAULT_OPTIONS = LoraOptions()


@dataclass(eq=False, slots=True)
class LoraTable:
    """The adapters resident for one fused module, by slot.

    On a CPU their weights are float32, regardless of the model's dtype.
    """

    in_features: int
    widths: tuple[int, ...]  # outputs of each target side by side
    options: LoraOptions = DEFAULT_OPTIONS
    weights: dict[int, LoraWeights] = field(default_factory=dict)
    slots: "SlotTable | None" = None  # addresses of the weights, for the kernels of a GPU
    _prepared: list["_Prepared"] = field(default_factory=list)

    @property
    def out_features(self) -> int:
        return sum(self.widths)

    @property
    def compiled(self) -> bool:
        """Whether compiled loops compute all segments at once."""
        return cpu.available() and all(w.a.device.type == "cpu" for w in self.weights.values())

    def reserve(self, slots: int, rank: int, dtype: torch.dtype, device: torch.device) -> None:
        """On a GPU, reserve room for `slots` slots, with adapters of at most this rank over all targets; see
        `SlotTable`."""
        if gpu.serves(device):
            self.slots = SlotTable(self.widths, self.in_features, dtype, device)
            self.slots.reserve(slots, rank)

    def put(self, slot: int, weights: LoraWeights) -> None:
        self.weights[slot] = weights
        self._prepared.clear()  # prepared work holds the addresses of the slot's previous weights
        if gpu.serves(weights.a.device):
            if self.slots is None:
                self.slots = SlotTable(self.widths, self.in_features, weights.a.dtype, weights.a.device)
            self.slots.put(slot, weights)

    def clear(self, slot: int) -> None:
        if self.weights.pop(slot, None) is not None:
            self._prepared.clear()
            if self.slots is not None:
                self.slots.clear(slot)

    def start(self, x: Tensor, segments: Segments) -> Finish | None:
        """Launch what needs `x` alone, if the options say so. `add` must get the result."""
        beside, slots = self.options.beside, self.slots
        if beside is None or slots is None:
            return None
        if isinstance(segments, FixedSegments):
            return start_segments(slots, x, segments.work, beside)
        prepared = self._prepare(segments)
        return start_segments(slots, x, prepared.work, beside) if prepared.present else None

    def add(self, out: Tensor, x: Tensor, segments: Segments, finish: Finish | None = None) -> None:
        """Apply each segment's adapter to its rows of `out` [rows, out] in place, given `x` [rows, in], and what
        `start` returned.

        Slots whose adapter does not target this module are absent from `weights`. Segments are computed separately, so
        that NaN or Inf in one adapter cannot reach a row of another.
        """
        if isinstance(segments, FixedSegments):
            self._add_fixed(out, x, segments, finish)
            return
        prepared = self._prepare(segments)
        if not prepared.present:
            return
        prepared.change_base(out, x)
        if self.slots is None and out.device.type == "cpu" and out.dtype != torch.float32:
            update = torch.zeros(out.shape, dtype=torch.float32)
            prepared.add(update, x.float())
            out.add_(update)
        else:
            prepared.add(out, x, finish)

    def launch(self, out: Tensor, x: Tensor, work: WorkList, finish: Finish | None) -> None:
        """Launch the kernels of a GPU, or those that `start` left."""
        assert self.slots is not None
        if finish is None:
            add_segments(self.slots, out, x, work, dependent=self.options.dependent_launch)
        else:
            finish(out)

    def _add_fixed(self, out: Tensor, x: Tensor, segments: FixedSegments, finish: Finish | None) -> None:
        if self.slots is not None:
            self.launch(out, x, segments.work, finish)
            return
        for slot, weights in self.weights.items():  # apply each to all rows, then select its own
            all_rows = Segment(slot, 0, out.shape[0])
            changed = out.to(weights.a.dtype, copy=True)
            for change in weights.base_changes:
                change.apply(changed, x, slice(None))
            add_segment_by_segment(changed, x.to(changed.dtype), [all_rows], self.weights)
            out.copy_(changed.to(out.dtype).where(segments.slots[:, None] == slot, out))

    def _prepare(self, segments: tuple[Segment, ...]) -> "_Prepared":
        """Return the prepared work. Steps pass the identical tuple while the composition of the batch stays."""
        for prepared in self._prepared:
            if prepared.segments is segments:
                return prepared
        self._prepared = [*self._prepared[1 - _MAX_PREPARED :], _Prepared(self, segments)]
        return self._prepared[-1]


def join_slot_tables(tables: Iterable["SlotTable | None"], slots: int) -> Callable[[], None]:
    """Put the reserved tables of a GPU that have equally many places per slot side by side in one memory.

    Returns a function that copies changes to the device; it must be called before any launch that reads the tables.
    """
    by_places: dict[int, list[SlotTable]] = {}
    for table in tables:
        if table is not None:
            by_places.setdefault(table.places, []).append(table)
    memories = [SlotMemory(slots, each, each[0].device) for each in by_places.values()]

    def send() -> None:
        for memory in memories:
            memory.send()

    return send


_MAX_PREPARED = 4  # compositions: those of the body and of the head, each with and without a chunk of prefill


class _Prepared:
    """The work of `LoraTable.add` for one composition of the batch, without anything that depends on x."""

    def __init__(self, table: LoraTable, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self.present = [s for s in segments if s.slot in table.weights]
        self._weights = table.weights
        self._table = table
        slots = table.slots
        long = table.options.matmuls_from
        self._changes = [
            (slice(s.start, s.stop), change)
            for s in self.present
            for change in table.weights[s.slot].base_changes
            # the GPU kernels apply affine changes themselves
            if slots is None or s.rows >= long or not isinstance(change, Affine)
        ]
        self._low_rank = [s for s in self.present if table.weights[s.slot].expands]
        self._long = [s for s in self._low_rank if s.rows >= long]
        self._rows = low_rank_rows(self._low_rank, table.weights) if self._low_rank and table.compiled else None
        self.work: WorkList = () if slots is None else work_list(segments, slots.device, slots.dtype, below=long)

    def change_base(self, out: Tensor, x: Tensor) -> None:
        for rows, change in self._changes:
            change.apply(out, x, rows)

    def add(self, out: Tensor, x: Tensor, finish: Finish | None = None) -> None:
        if self._table.slots is not None:
            self._table.launch(out, x, self.work, finish)
            add_segment_by_segment(out, x, self._long, self._weights)
        elif self._rows is not None:
            self._rows.add(out, x)
        else:
            add_segment_by_segment(out, x, self._low_rank, self._weights)


def low_rank_rows(segments: Sequence[Segment], weights: Mapping[int, LoraWeights]) -> "LowRankRows":
    """Return the products of these segments, by the addresses of their weights."""
    rows: list[tuple[int, ...]] = []
    expands: list[tuple[int, ...]] = []
    for segment in segments:
        w, first = weights[segment.slot], len(expands)
        expands += w.expand_addresses
        rows.append((segment.start, segment.stop, w.rank, w.a.data_ptr(), first, len(expands)))
    return LowRankRows(np.array(rows), np.array(expands))


def add_segment_by_segment(
    out: Tensor, x: Tensor, segments: Sequence[Segment], weights: Mapping[int, LoraWeights]
) -> None:
    """Add `x @ Aᵀ @ B` of each segment's adapter to its rows of `out` in place, with a few calls per segment."""
    for segment in segments:
        w = weights[segment.slot]
        shrunk = x[segment.start : segment.stop] @ w.a.T
        for expand in w.expands:
            columns = slice(expand.out_start, expand.out_start + expand.b.shape[1])
            target = out[segment.start : segment.stop, columns]
            target.addmm_(shrunk[:, expand.rank_start : expand.rank_stop], expand.b)


def lora_reference(base: Tensor, x: Tensor, slots: Sequence[int], weights: Mapping[int, LoraWeights]) -> Tensor:
    """Compute `LoraTable.add` on `base` row by row in float64: [rows, out_features]. For tests."""
    out = base.double().clone()
    for row, slot in enumerate(slots):
        if slot < 0 or slot not in weights:
            continue
        for change in weights[slot].base_changes:
            doubles = (t.double() if t.is_floating_point() else t for t in change.tensors)
            change.on(doubles).apply(out, x.double(), slice(row, row + 1))
        shrunk = weights[slot].a.double() @ x[row].double()
        for e in weights[slot].expands:
            columns = slice(e.out_start, e.out_start + e.b.shape[1])
            out[row, columns] += shrunk[e.rank_start : e.rank_stop] @ e.b.double()
    return out
