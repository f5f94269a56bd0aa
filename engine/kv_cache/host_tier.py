"""Host memory for blocks of keys and values that were evicted from the device."""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle

import numpy as np
import torch
from torch import Tensor

from loragate.engine.runtime.copy_stream import (
    CopyStream,
    CudaComputeStream,
    CudaCopyStream,
    Event,
    HostCopyStream,
    Stream,
)
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.transfers import to_device

log = logging.getLogger(__name__)

_LOCK_CHUNK_BYTES = 1 << 28  # bytes
_MOVE_CHUNK_BYTES = 1 << 25  # bytes; the device needs three times as much beside its cache
_BUFFERS = 2  # one is gathered or scattered while the other is in transfer


@dataclass(slots=True)
class _Buffer:
    """Blocks on the device, on their way from or to the host."""

    rows: Tensor  # [blocks, numbers of a block]
    used: Event | None = None  # after the last operation on it


class KVHostTier:
    """Slots within `budget` bytes, one block of all layers each, with contiguous numbers: a slot is one copy.

    Blocks are gathered into a buffer, and scattered from it, among the steps; the host's memory is copied beside them,
    on a stream of its own. Nothing is waited for on the host. All copies are in the order of the calls, so a slot may
    be used again, and a block written again, as soon as a call returns. A step after `save` waits only if both buffers
    are in transfer; one after `load` waits for its blocks, which are copied during the steps before it.
    """

    def __init__(
        self,
        caches: Sequence[LayerCache],
        block_size: int,
        budget: int,
        computes: Stream | None = None,
        copies: CopyStream | None = None,
    ) -> None:
        self._caches = caches
        self._block_size = block_size
        self._widths = [c.numbers_per_place * block_size for c in caches]
        first = caches[0].stored[0]
        self.block_bytes = sum(self._widths) * first.element_size()
        cuda = first.device.type == "cuda"
        self._computes = computes or (CudaComputeStream(first.device) if cuda else HostCopyStream())
        self._copies = copies or (CudaCopyStream(first.device) if cuda else HostCopyStream())
        allocate = _locked if cuda else _unlocked
        self._memory = list(allocate(budget, self.block_bytes, sum(self._widths), first.dtype))
        self._starts = [0, *accumulate(part.shape[0] for part in self._memory)]
        self.total = self._starts[-1]
        self._free = list(range(self.total - 1, -1, -1))
        self._at_once = max(1, min(_MOVE_CHUNK_BYTES // self.block_bytes, self.total))
        shape = self._at_once if self.total else 0, sum(self._widths)
        self._buffers = cycle(
            [_Buffer(torch.empty(shape, dtype=first.dtype, device=first.device)) for _ in range(_BUFFERS)]
        )

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def save(self, blocks: Sequence[int]) -> list[int]:
        """Copy blocks off the device, and return their slots. As many slots must be free."""
        assert len(blocks) <= len(self._free)
        slots = [self._free.pop() for _ in blocks]
        for some in self._portions(len(blocks)):
            self._save(slots[some], blocks[some])
        return slots

    def load(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy slots into blocks on the device; the slots are free then."""
        for some in self._portions(len(blocks)):
            self._load(slots[some], blocks[some])
        self.release(slots)

    def release(self, slots: Iterable[int]) -> None:
        """Free these slots."""
        self._free.extend(slots)

    def _portions(self, blocks: int) -> Iterator[slice]:
        for start in range(0, blocks, self._at_once):
            yield slice(start, start + self._at_once)

    def _save(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        rows, buffer = self._take_buffer(self._computes, len(blocks))
        self._gather(rows, blocks)
        self._copies.wait(self._computes.record())
        for slot, row in zip(slots, rows, strict=True):
            self._copies.copy(row.view(torch.uint8), [self._slot(slot)])
        buffer.used = self._copies.record()

    def _load(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        rows, buffer = self._take_buffer(self._copies, len(blocks))
        for row, slot in zip(rows, slots, strict=True):
            self._copies.copy(self._slot(slot), [row.view(torch.uint8)])
        self._computes.wait(self._copies.record())
        self._scatter(rows, blocks)
        buffer.used = self._computes.record()

    def _take_buffer(self, stream: Stream, blocks: int) -> tuple[Tensor, _Buffer]:
        """Return rows for these blocks, and their buffer, which later operations of the stream may overwrite."""
        buffer = next(self._buffers)
        if buffer.used is not None:
            stream.wait(buffer.used)
        return buffer.rows[:blocks], buffer

    def _gather(self, rows: Tensor, blocks: Sequence[int]) -> None:
        places = self._places(blocks)
        torch.cat([cache.read_blocks(places, len(blocks)) for cache in self._caches], dim=1, out=rows)

    def _scatter(self, rows: Tensor, blocks: Sequence[int]) -> None:
        places = self._places(blocks)
        for cache, part in zip(self._caches, rows.split(self._widths, dim=1), strict=True):
            cache.write_blocks(places, part)

    def _slot(self, number: int) -> Tensor:
        """Return the bytes of a slot."""
        part = bisect_right(self._starts, number) - 1
        return self._memory[part][number - self._starts[part]].view(torch.uint8)

    def _places(self, blocks: Sequence[int]) -> Tensor:
        starts = np.array(blocks)[:, None] * self._block_size
        return to_device((starts + np.arange(self._block_size)).reshape(-1), self._caches[0].keys.device)


def _unlocked(budget: int, block_bytes: int, width: int, dtype: torch.dtype) -> Iterator[Tensor]:
    yield torch.empty(budget // block_bytes, width, dtype=dtype)


def _locked(budget: int, block_bytes: int, width: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield page-locked memory, as much of the budget as can be locked; a GPU copies asynchronously only from there."""
    for blocks in chunk_sizes(budget, block_bytes):
        try:
            yield torch.empty(blocks, width, dtype=dtype, pin_memory=True)
        except RuntimeError as error:
            log.warning("not all of %d MB of host memory for keys and values can be locked: %s", budget >> 20, error)
            return


def chunk_sizes(budget: int, block_bytes: int) -> Iterator[int]:
    """Yield the number of blocks in each piece of locked memory.

    torch allocates powers of two of it and keeps them: in a single piece, nearly half might be wasted, on top of the
    budget.
    """
    size = max(_LOCK_CHUNK_BYTES, 1 << (block_bytes - 1).bit_length())
    while size >= block_bytes:
        yield from [size // block_bytes] * (budget // size)
        budget %= size
        size //= 2
