"""The weights of an adapter for a stacked parameter of experts."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ExpertFactors:
    """One adapter's factors for one stacked parameter."""

    a: Tensor  # [experts, rank, in]
    b: Tensor  # [experts, rank, out], already scaled by alpha/r

    def __post_init__(self) -> None:
        assert self.a.shape[0] == self.b.shape[0]
        assert self.a.shape[1] == self.b.shape[1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.a, self.b)

    def on(self, tensors: Sequence[Tensor]) -> "ExpertFactors":
        """Return the same weights with other tensors."""
        return ExpertFactors(*tensors)
