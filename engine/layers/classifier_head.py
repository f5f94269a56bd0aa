"""The heads of classifiers: each adapter's own, applied to final states that never reach the head for tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from loragate.kernels.packed_linear import in_blocks


@dataclass(frozen=True, slots=True)
class HeadPatch:
    """One adapter's head, in float32: a rounding of its logits is not made good by anything after it."""

    weight: Tensor  # [labels, hidden]
    bias: Tensor | None = None  # [labels]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def on(self, tensors: Sequence[Tensor]) -> "HeadPatch":
        return HeadPatch(*tensors)


@dataclass(eq=False, slots=True)
class ClassifierHeads:
    """The heads of the adapters on the device, by slot. Any number of them, with any numbers of labels."""

    _by_slot: dict[int, HeadPatch] = field(default_factory=dict)

    def put(self, slot: int, patch: HeadPatch) -> None:
        self._by_slot[slot] = patch

    def clear(self, slot: int) -> None:
        self._by_slot.pop(slot, None)

    def labels(self, slot: int) -> int | None:
        """Return the number of labels of the adapter in the slot; None if it has no head."""
        head = self._by_slot.get(slot)
        return None if head is None else head.weight.shape[0]

    def logits(self, slot: int, states: Tensor) -> Tensor:
        """Return the logits [rows, labels], float32, of final states [rows, hidden].

        All products have the same number of rows, so that a row's logits do not depend on which rows are computed with
        it: one row on a CPU, a block on a GPU, where each product is a launch.
        """
        head, rows = self._by_slot[slot], states.float()
        if rows.device.type != "cpu":
            return in_blocks(lambda block: F.linear(block, head.weight, head.bias), rows)
        return torch.cat([F.linear(row, head.weight, head.bias) for row in rows.split(1)])
