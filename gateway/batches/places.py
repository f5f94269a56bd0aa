"""The places of a process for lines that are running, shared evenly among the batches that it holds."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_BYTES = 32 << 20  # of all lines that are running, unless there is only one


class LinePlaces:
    """At most `places` lines run at a time."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._shares: set[BatchPlaces] = set()
        self.size = 0
        self.freed = asyncio.Event()

    @property
    def share(self) -> int:
        """The places of one batch."""
        return max(1, self._places // max(1, len(self._shares)))

    @contextmanager
    def batch(self) -> "Iterator[BatchPlaces]":
        """Give a batch its share during the block."""
        own = BatchPlaces(self)
        self._shares.add(own)
        try:
            yield own
        finally:
            self._shares.discard(own)
            self.freed.set()

    def has_room(self, used: int, size: int) -> bool:
        """Return whether a batch that uses so many places may take another, for a line of so many bytes."""
        return used < self.share and (not self.size or self.size + size <= _MAX_BYTES)


class BatchPlaces:
    """The places of one batch."""

    def __init__(self, all_places: LinePlaces) -> None:
        self._all = all_places
        self._used = 0

    async def take(self, size: int) -> None:
        """Wait for a place."""
        while not self._all.has_room(self._used, size):
            self._all.freed.clear()
            await self._all.freed.wait()
        self._used += 1
        self._all.size += size

    def give_back(self, size: int) -> None:
        """Free a place."""
        self._used -= 1
        self._all.size -= size
        self._all.freed.set()
