"""Segmented LoRA: every row of a packed batch gets the low-rank update of its own adapter.

The computation is S-LoRA's and Punica's (Sheng et al., 2023, arXiv:2311.03285, section 5; Chen et al., 2023,
arXiv:2310.18547, section 4): rows are sorted by adapter slot, and each run of equal slots is one segment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, stop) of the packed batch belong to the adapter in `slot`. Base-only rows are in no segment."""

    slot: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop
        assert self.slot >= 0


@dataclass(frozen=True, slots=True)
class Expand:
    """The second half of one target module: columns [rank_start, rank_stop) of the shrunken rows, times `b`."""

    rank_start: int
    rank_stop: int
    out_start: int  # first column of the module in the fused output
    b: Tensor  # [rank, out], scaled by alpha/r
    bias: Tensor | None = None  # [out], scaled


@dataclass(frozen=True, slots=True)
class LoraWeights:
    """One adapter's weights for one fused module: the A of all its targets side by side, and a B for each."""

    a: Tensor  # [in, sum of ranks]
    expands: tuple[Expand, ...]

    def __post_init__(self) -> None:
        assert self.a.shape[1] == sum(e.rank_stop - e.rank_start for e in self.expands)


def add_segmented_lora(out: Tensor, x: Tensor, segments: Sequence[Segment], weights: Mapping[int, LoraWeights]) -> None:
    """Add `x @ A @ B` of each segment's adapter to its rows of `out`, in place.

    out [rows, out] and x [rows, in] in one dtype; `weights` maps a slot to its adapter's weights, slots whose
    adapter does not target this module are absent. Rows are computed segment by segment, so NaN or Inf in one
    adapter cannot reach a row of another.
    """
    for segment in segments:
        w = weights.get(segment.slot)
        if w is None:
            continue
        shrunk = x[segment.start : segment.stop] @ w.a
        for expand in w.expands:
            columns = slice(expand.out_start, expand.out_start + expand.b.shape[1])
            target = out[segment.start : segment.stop, columns]
            target.addmm_(shrunk[:, expand.rank_start : expand.rank_stop], expand.b)
            if expand.bias is not None:
                target.add_(expand.bias)


def lora_reference(x: Tensor, slots: Sequence[int], weights: Mapping[int, LoraWeights], out_features: int) -> Tensor:
    """What `add_segmented_lora` computes, row by row in float64: [rows, out_features]. For tests."""
    update = torch.zeros(x.shape[0], out_features, dtype=torch.float64)
    for row, slot in enumerate(slots):
        if slot < 0 or slot not in weights:
            continue
        shrunk = x[row].double() @ weights[slot].a.double()
        for e in weights[slot].expands:
            delta = shrunk[e.rank_start : e.rank_stop] @ e.b.double()
            if e.bias is not None:
                delta = delta + e.bias.double()
            update[row, e.out_start : e.out_start + e.b.shape[1]] += delta
    return update
