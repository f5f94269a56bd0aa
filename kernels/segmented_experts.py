"""LoRA on the experts of a mixture: every row gets, at each expert it is routed to, its own adapter's update there.

The routed rows are sorted by expert and, within one, by adapter slot. A run of one expert's rows is one product with
its base weights; a run of one slot's rows within it is one segment, as in `segmented_lora`, with that expert's A and B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels import cpu
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.segmented_lora import Segment

if cpu.available():
    from loragate.kernels.cpu.low_rank import LowRankRows

_ITEM = 4  # bytes of a float32


@dataclass(frozen=True, slots=True)
class ExpertRun:
    """Routed rows [start, stop) go to one expert."""

    expert: int
    start: int
    stop: int


Segments = npt.NDArray[np.int64]
"""[segments, 4]: routed rows [start, stop) go to one expert and belong to the adapter in one slot, as columns slot,
expert, start, stop. A table, because a step has hundreds of them."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Who goes where. A routed row is a pair of a row and one of its experts."""

    order: Tensor  # [routed], places in the flattened choice of experts [rows · top_k]
    rows: Tensor  # [routed], the row of each
    runs: tuple[ExpertRun, ...]
    segments: Segments  # base-only rows are in none


def route(chosen: Tensor, segments: Sequence[Segment]) -> Routing:
    """Sort the choice of experts, `chosen` [rows, top_k], by expert and slot.

    Reads the choice on the host: on a GPU, that waits for the device once for each mixture.
    """
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
    """Runs of equal values: what they are, where they start and where they stop."""
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return values[starts], starts, np.append(starts[1:], len(values))


@dataclass(frozen=True, slots=True)
class ExpertFactors:
    """One adapter's weights for one stacked parameter."""

    a: Tensor  # [experts, rank, in]
    b: Tensor  # [experts, rank, out], scaled by alpha/r

    def __post_init__(self) -> None:
        assert self.a.shape[0] == self.b.shape[0]
        assert self.a.shape[1] == self.b.shape[1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.a, self.b)

    def on(self, tensors: Sequence[Tensor]) -> "ExpertFactors":
        """The same weights in other memory."""
        return ExpertFactors(*tensors)


class StackedLinear:
    """One linear layer for each expert: weights [experts, out, in], biases [experts, out] or None."""

    def __init__(self, weights: Tensor, biases: Tensor | None) -> None:
        self.experts, self.out_features, self.in_features = weights.shape
        self._linears = [PackedLinear(w, None if biases is None else biases[e]) for e, w in enumerate(weights)]

    def __call__(self, x: Tensor, runs: Sequence[ExpertRun]) -> Tensor:
        """x [routed, in] → [routed, out], by one product for each expert that has rows."""
        return torch.cat([self._linears[run.expert](x[run.start : run.stop]) for run in runs])


class ExpertTable:
    """The adapters resident for one stacked parameter, by slot. On a CPU they are float32, see `LoraTable`."""

    def __init__(self) -> None:
        self.weights: dict[int, ExpertFactors] = {}
        self._places = np.zeros((1, 3), dtype=np.int64)  # by slot: rank, or 0 if absent; the addresses of A and of B

    def put(self, slot: int, factors: ExpertFactors) -> None:
        self.weights[slot] = factors
        missing = max(0, slot + 1 - len(self._places))
        self._places = np.pad(self._places, ((0, missing), (0, 0)))
        self._places[slot] = factors.a.shape[1], factors.a.data_ptr(), factors.b.data_ptr()

    def clear(self, slot: int) -> None:
        if self.weights.pop(slot, None) is not None:
            self._places[slot] = 0

    def add(self, out: Tensor, x: Tensor, segments: Segments) -> None:
        """Add each segment's `x @ Aᵀ @ B` to its rows of `out` [routed, out], given `x` [routed, in], in place.

        Slots whose adapter does not target this parameter are absent. Segments are computed apart, so that NaN or Inf
        in one adapter cannot reach a row of another.
        """
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
        """The products of all segments, by the addresses of each expert's factors."""
        slots, experts, starts, stops = segments.T
        ranks, a, b = self._places[slots].T
        each = np.arange(len(segments))
        rows = _table(starts, stops, ranks, a + experts * ranks * inputs * _ITEM, each, each + 1)
        return LowRankRows(rows, _table(0, ranks, outputs, 0, b + experts * ranks * outputs * _ITEM))


def _table(*columns: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Columns side by side."""
    return np.stack(np.broadcast_arrays(*columns), axis=1)


def experts_reference(
    base: Tensor, x: Tensor, experts: Sequence[int], slots: Sequence[int], weights: Mapping[int, ExpertFactors]
) -> Tensor:
    """What `ExpertTable.add` makes of `base`, row by row in float64: [routed, out]. For tests."""
    out = base.double().clone()
    for row, (expert, slot) in enumerate(zip(experts, slots, strict=True)):
        if slot in weights:
            a, b = weights[slot].tensors
            out[row] += a[expert].double() @ x[row].double() @ b[expert].double()
    return out
