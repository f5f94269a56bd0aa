"""Host memory for blocks of keys and values that had to leave the device."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from loragate.kernels.paged_attention import LayerCache
from loragate.kernels.sent import sent


class KVHostTier:
    """`budget` bytes of slots, one block of all layers each, its numbers contiguous: a slot is one copy.

    All copies are queued on the current stream, in the order of the calls, and never waited for. A slot may
    therefore be used again, and a block written again, as soon as a call returns.
    """

    def __init__(self, caches: Sequence[LayerCache], block_size: int, budget: int) -> None:
        self._caches = caches
        self._block_size = block_size
        self._widths = [c.numbers_per_place * block_size for c in caches]
        first = caches[0].stored[0]
        self.block_bytes = sum(self._widths) * first.element_size()
        self.total = budget // self.block_bytes
        pinned = first.device.type == "cuda"
        self._slots = torch.empty(self.total, sum(self._widths), dtype=first.dtype, pin_memory=pinned)
        self._free = list(range(self.total - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def save(self, blocks: Sequence[int]) -> list[int]:
        """Copy blocks off the device: the slots they went to. There must be as many free."""
        assert len(blocks) <= len(self._free)
        slots = [self._free.pop() for _ in blocks]
        places = self._places(blocks)
        rows = torch.cat([cache.read_blocks(places, len(blocks)) for cache in self._caches], dim=1)
        for slot, row in zip(slots, rows, strict=True):
            self._slots[slot].copy_(row, non_blocking=True)
        return slots

    def load(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy slots into blocks on the device; the slots are free then."""
        places = self._places(blocks)
        rows = torch.empty(len(slots), self._slots.shape[1], dtype=self._slots.dtype, device=places.device)
        for row, slot in zip(rows, slots, strict=True):
            row.copy_(self._slots[slot], non_blocking=True)
        for cache, part in zip(self._caches, rows.split(self._widths, dim=1), strict=True):
            cache.write_blocks(places, part)
        self.release(slots)

    def release(self, slots: Iterable[int]) -> None:
        """What these slots hold is not wanted any more."""
        self._free.extend(slots)

    def _places(self, blocks: Sequence[int]) -> Tensor:
        starts = np.array(blocks)[:, None] * self._block_size
        return sent((starts + np.arange(self._block_size)).reshape(-1), self._caches[0].keys.device)
