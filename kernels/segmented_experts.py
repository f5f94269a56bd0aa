"""LoRA on the experts of a mixture: every row gets, at each expert it is routed to, its own adapter's update there.

The routed rows are sorted by expert and, within one, by adapter slot. A run of one expert's rows is one product with
its base weights; a run of one slot's rows within it is one segment, as in `segmented_lora`, with that expert's A and B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.segmented_lora import Segment


@dataclass(frozen=True, slots=True)
class ExpertRun:
    """Routed rows [start, stop) go to one expert."""

    expert: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ExpertSegment:
    """Routed rows [start, stop) go to one expert and belong to the adapter in `slot`."""

    slot: int
    expert: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Routing:
    """Who goes where. A routed row is a pair of a row and one of its experts."""

    order: Tensor  # [routed], places in the flattened choice of experts [rows · top_k]
    rows: Tensor  # [routed], the row of each
    runs: tuple[ExpertRun, ...]
    segments: tuple[ExpertSegment, ...]  # base-only rows are in none


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
    return Routing(
        places,
        places // top_k,
        tuple(ExpertRun(*run) for run in _equal(keys // adapters)),
        tuple(ExpertSegment(key % adapters - 1, key // adapters, *at) for key, *at in _equal(keys) if key % adapters),
    )


def _equal(values: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Runs of equal values: (value, start, stop)."""
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    stops = np.append(starts[1:], len(values))
    return list(zip(values[starts].tolist(), starts.tolist(), stops.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class ExpertFactors:
    """One adapter's weights for one stacked parameter."""

    a: Tensor  # [experts, in, rank]
    b: Tensor  # [experts, rank, out], scaled by alpha/r

    def __post_init__(self) -> None:
        assert self.a.shape[0] == self.b.shape[0]
        assert self.a.shape[2] == self.b.shape[1]

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


@dataclass(eq=False, slots=True)
class ExpertTable:
    """The adapters resident for one stacked parameter, by slot. On a CPU they are float32, see `LoraTable`."""

    weights: dict[int, ExpertFactors] = field(default_factory=dict)

    def add(self, out: Tensor, x: Tensor, segments: Sequence[ExpertSegment]) -> None:
        """Add each segment's `x @ A @ B` to its rows of `out` [routed, out], given `x` [routed, in], in place.

        Slots whose adapter does not target this parameter are absent. Segments are computed apart, so that NaN or Inf
        in one adapter cannot reach a row of another.
        """
        for segment in segments:
            factors = self.weights.get(segment.slot)
            if factors is None:
                continue
            at = slice(segment.start, segment.stop)
            a, b = factors.a[segment.expert], factors.b[segment.expert]
            if a.dtype == out.dtype:
                out[at].addmm_(x[at] @ a, b)
            else:
                out[at] += x[at].to(a.dtype) @ a @ b


def experts_reference(
    base: Tensor, x: Tensor, experts: Sequence[int], slots: Sequence[int], weights: Mapping[int, ExpertFactors]
) -> Tensor:
    """What `ExpertTable.add` makes of `base`, row by row in float64: [routed, out]. For tests."""
    out = base.double().clone()
    for row, (expert, slot) in enumerate(zip(experts, slots, strict=True)):
        if slot in weights:
            a, b = weights[slot].tensors
            out[row] += x[row].double() @ a[expert].double() @ b[expert].double()
    return out
