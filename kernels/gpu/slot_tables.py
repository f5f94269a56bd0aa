"""The tables of all modules side by side: an adapter that comes or goes is one small copy, not one for each module."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from loragate.kernels.host_to_device import sent

if TYPE_CHECKING:
    from loragate.kernels.gpu.segmented_lora import SlotTable

_ALIGNMENT = 2  # fields: kernels are compiled for addresses that are multiples of 16 bytes, and again for others


class SlotMemory:
    """A row for each slot, in which every table has its place: [slots, fields of all tables]."""

    def __init__(self, slots: int, tables: Sequence["SlotTable"], device: torch.device) -> None:
        widths = [-(-table.width // _ALIGNMENT) * _ALIGNMENT for table in tables]
        self.fields = torch.zeros(slots, sum(widths), dtype=torch.int64, device=device)
        self._host = np.zeros(self.fields.shape, dtype=np.int64)
        self._changed: set[int] = set()
        for i, table in enumerate(tables):
            table.move(self, sum(widths[:i]))

    def write(self, slot: int, start: int, fields: Sequence[int]) -> None:
        """What stands there from the next `send` on."""
        self._host[slot, start : start + len(fields)] = fields
        self._changed.add(slot)

    def send(self) -> None:
        """Bring what changed to the device, behind all that was launched and in front of what will be. Nobody waits."""
        for slot in self._changed:
            self.fields[slot].copy_(sent(self._host[slot], self.fields.device))
        self._changed.clear()
