"""The weights of an adapter for a fused module."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from loragate.kernels.base_output import BaseChange


@dataclass(frozen=True, slots=True)
class Expand:
    """The second factor of one target module: columns [rank_start, rank_stop) of the shrunken rows, times `b`."""

    rank_start: int
    rank_stop: int
    out_start: int  # first column of the module in the fused output
    b: Tensor  # [rank, out], already scaled


@dataclass(frozen=True)
class LoraWeights:
    """One adapter's weights for one fused module: the A of all its targets side by side, and one B per target."""

    a: Tensor  # [sum of ranks, in]
    expands: tuple[Expand, ...]
    base_changes: tuple[BaseChange, ...] = ()  # applied in this order

    def __post_init__(self) -> None:
        assert self.a.shape[0] == sum(e.rank_stop - e.rank_start for e in self.expands)

    @cached_property
    def rank(self) -> int:
        """The sum of the ranks of all targets."""
        return self.a.shape[0]

    @cached_property
    def expand_addresses(self) -> list[tuple[int, int, int, int, int]]:
        """The expands in the form that `LowRankRows` takes."""
        return [(e.rank_start, *e.b.shape, e.out_start, e.b.data_ptr()) for e in self.expands]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.a, *(e.b for e in self.expands), *(t for change in self.base_changes for t in change.tensors))

    def on(self, tensors: Sequence[Tensor]) -> "LoraWeights":
        """Return the same weights with other tensors, in the order of the property `tensors`."""
        left = iter(tensors)
        a = next(left)
        expands = tuple(Expand(e.rank_start, e.rank_stop, e.out_start, next(left)) for e in self.expands)
        return LoraWeights(a, expands, tuple(change.on(left) for change in self.base_changes))
