"""LoRA on the experts of a mixture: every row gets, at each expert it is routed to, the update of its own adapter.

The routed rows are sorted by expert and, within one, by adapter slot. A run of one expert's rows is one product with
its base weights; a run of one slot's rows within it is one segment, as in `segmented_lora`, with that expert's A and B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels import cpu, gpu
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.segments import FixedSegments, Segment
from loragate.kernels.segments import Segments as RowSegments

if cpu.available():
    from loragate.kernels.cpu.low_rank import LowRankRows
if gpu.available():
    from loragate.kernels.gpu.grouped_experts import (
        ExpertSlots,
        ExpertTiles,
        grouped_linear,
        route_on_device,
        tiling_for,
    )
    from loragate.kernels.gpu.slot_tables import SlotTable

_ITEM = 4  # bytes of a float32


@dataclass(frozen=True, slots=True)
class ExpertRun:
    """Routed rows [start, stop) that go to one expert."""

    expert: int
    start: int
    stop: int


Segments = npt.NDArray[np.int64]
"""[segments, 4]: columns slot, expert, start, stop. Routed rows [start, stop) go to one expert and belong to the
adapter in one slot. It is a table because a step has hundreds of them."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The assignment of rows to experts. A routed row is a pair of a row and one of its experts."""

    order: Tensor  # [routed], places in the flattened choice of experts [rows · top_k]
    rows: Tensor  # [routed], the row of each
    runs: tuple[ExpertRun, ...] = ()
    segments: Segments = field(default_factory=lambda: np.zeros((0, 4), dtype=np.int64))  # base-only rows are in none
    tiles: "ExpertTiles | None" = None  # on a GPU, in place of runs and segments


def route(chosen: Tensor, segments: Sequence[Segment]) -> Routing:
    """Sort the choice of experts, `chosen` [rows, top_k], by expert and slot, on the host."""
    rows, top_k = chosen.shape
    slots = np.zeros(rows, dtype=np.int64)
    for segment in segments:
        slots[segment.start : segment.stop] = segment.slot + 1
    adapters = int(slots.max(initial=0)) + 1
    keys: npt.NDArray[np.int64] = chosen.reshape(-1).cpu().numpy() * adapters + slots.repeat(top_k)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    places = torch.from_numpy(order).to(chosen.device)
    pairs, starts, stops = _equal(keys)
    table = np.stack([pairs % adapters - 1, pairs // adapters, starts, stops], axis=1)
    runs = (column.tolist() for column in _equal(keys // adapters))
    return Routing(places, places // top_k, tuple(map(ExpertRun, *runs)), table[table[:, 0] >= 0])


def _equal(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return runs of equal values: the values, their starts and their stops."""
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return values[starts], starts, np.append(starts[1:], len(values))


class StackedLinear:
    """One linear layer per expert: weights [experts, out, in], biases [experts, out] or None."""

    def __init__(self, weights: Tensor, biases: Tensor | None) -> None:
        self.experts, self.out_features, self.in_features = weights.shape
        self._grouped = (weights, biases) if gpu.serves(weights.device) else None
        self._dtype = weights.dtype
        self._linears = (
            []
            if self._grouped
            else [PackedLinear(w, None if biases is None else biases[e]) for e, w in enumerate(weights)]
        )

    def route(self, chosen: Tensor, segments: RowSegments, slots: int = 0) -> Routing:
        """Sort the choice of experts, `chosen` [rows, top_k], by expert and slot; on a GPU, without waiting for it.

        Fixed segments, which only a GPU uses, have slots below `slots`.
        """
        if self._grouped is None:
            assert not isinstance(segments, FixedSegments)
            return route(chosen, segments)
        order, tiles = route_on_device(chosen, segments, self.experts, tiling_for(self._dtype).rows, slots)
        return Routing(order, order // chosen.shape[1], tiles=tiles)

    def __call__(self, x: Tensor, routing: Routing) -> Tensor:
        """Compute x [routed, in] → [routed, out]: one product per expert that has rows; on a GPU, one launch."""
        if self._grouped is not None:
            assert routing.tiles is not None
            return grouped_linear(x, *self._grouped, routing.tiles.by_expert)
        return torch.cat([self._linears[run.expert](x[run.start : run.stop]) for run in routing.runs])


class ExpertTable:
    """The adapters resident for one stacked parameter, by slot. On a CPU they are float32, see `LoraTable`."""

    def __init__(self) -> None:
        self.weights: dict[int, ExpertFactors] = {}
        self._places = np.zeros((1, 3), dtype=np.int64)  # by slot: rank (0 if absent), addresses of A and of B
        self._slots: ExpertSlots | None = None  # the same, for the kernels of a GPU
        self.reserved = 0  # slots

    @property
    def slots(self) -> "SlotTable | None":
        """The addresses of the weights, for the kernels of a GPU."""
        return None if self._slots is None else self._slots.table

    def reserve(self, slots: int, rank: int, linear: StackedLinear, like: Tensor) -> None:
        """On a GPU, reserve room for `slots` slots with adapters of at most this rank; see `SlotTable`.

        The adapters have the dtype and the device of `like`.
        """
        if gpu.serves(like.device):
            self._slots = ExpertSlots(linear.experts, linear.in_features, linear.out_features, like)
            self._slots.reserve(slots, rank)
            self.reserved = slots

    def put(self, slot: int, factors: ExpertFactors) -> None:
        self.weights[slot] = factors
        if gpu.serves(factors.a.device):
            if self._slots is None:
                experts, _, inputs = factors.a.shape
                self._slots = ExpertSlots(experts, inputs, factors.b.shape[2], factors.a)
            self._slots.put(slot, factors)
            return
        missing = max(0, slot + 1 - len(self._places))
        self._places = np.pad(self._places, ((0, missing), (0, 0)))
        self._places[slot] = factors.a.shape[1], factors.a.data_ptr(), factors.b.data_ptr()

    def clear(self, slot: int) -> None:
        if self.weights.pop(slot, None) is None:
            return
        if self._slots is not None:
            self._slots.clear(slot)
        else:
            self._places[slot] = 0

    def add(self, out: Tensor, x: Tensor, routing: Routing) -> None:
        """Add each segment's `x @ Aᵀ @ B` to its rows of `out` [routed, out] in place, given `x` [routed, in].

        Slots whose adapter does not target this parameter are absent. Segments are computed separately, so that NaN or
        Inf in one adapter cannot reach a row of another.
        """
        if routing.tiles is not None:
            if self._slots is not None:
                self._slots.add(out, x, routing.tiles.by_adapter)
            return
        segments = routing.segments
        present = segments[np.isin(segments[:, 0], list(self.weights))]
        if not len(present):
            return
        if out.device.type == "cpu" and out.dtype != torch.float32:
            update = torch.zeros(out.shape, dtype=torch.float32)
            self._add(update, x.float(), present)
            out.add_(update)
        else:
            self._add(out, x, present)

    def _add(self, out: Tensor, x: Tensor, segments: Segments) -> None:
        if out.device.type == "cpu" and cpu.available():
            self._rows(segments, x.shape[1], out.shape[1]).add(out, x)
            return
        for slot, expert, start, stop in segments.tolist():
            a, b = self.weights[slot].tensors
            out[start:stop].addmm_(x[start:stop] @ a[expert].T, b[expert])

    def _rows(self, segments: Segments, inputs: int, outputs: int) -> "LowRankRows":
        """Return the products of all segments, by the addresses of each expert's factors."""
        slots, experts, starts, stops = segments.T
        ranks, a, b = self._places[slots].T
        each = np.arange(len(segments))
        rows = _table(starts, stops, ranks, a + experts * ranks * inputs * _ITEM, each, each + 1)
        return LowRankRows(rows, _table(0, ranks, outputs, 0, b + experts * ranks * outputs * _ITEM))


def _table(*columns: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return a table of these columns."""
    return np.stack(np.broadcast_arrays(*columns), axis=1)


def stacked_reference(weights: Tensor, biases: Tensor | None, x: Tensor, experts: Sequence[int]) -> Tensor:
    """Compute `StackedLinear` of x [routed, in] row by row in float64: [routed, out]. For tests."""
    out = x.new_empty(len(experts), weights.shape[1], dtype=torch.float64)
    for row, expert in enumerate(experts):
        out[row] = weights[expert].double() @ x[row].double()
        if biases is not None:
            out[row] += biases[expert].double()
    return out


def experts_reference(
    base: Tensor, x: Tensor, experts: Sequence[int], slots: Sequence[int], weights: Mapping[int, ExpertFactors]
) -> Tensor:
    """Compute `ExpertTable.add` on `base` row by row in float64: [routed, out]. For tests."""
    out = base.double().clone()
    for row, (expert, slot) in enumerate(zip(experts, slots, strict=True)):
        if slot in weights:
            a, b = weights[slot].tensors
            out[row] += a[expert].double() @ x[row].double() @ b[expert].double()
    return out
