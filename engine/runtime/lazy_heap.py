"""A priority queue whose items' keys change while they are in it."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_SPARE = 64  # stale entries that are not worth a rebuild


class LazyHeap(Generic[T]):
    """Returns the item with the lowest key, and the oldest among equals. All operations are O(log n), amortized.

    After a key increased nothing needs to be done: the item is moved when it surfaces. After a key decreased, `add` the
    item again.
    """

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._entries: list[tuple[Any, int, T]] = []
        self._current: dict[T, tuple[Any, int, T]] = {}
        self._serials = itertools.count()

    def __len__(self) -> int:
        return len(self._current)

    def __contains__(self, item: T) -> bool:
        return item in self._current

    def add(self, item: T) -> None:
        key, known = self._key(item), self._current.get(item)
        if known is not None and known[0] <= key:
            return
        entry = self._current[item] = (key, next(self._serials), item)
        heapq.heappush(self._entries, entry)
        if len(self._entries) > 2 * len(self._current) + _SPARE:
            self._entries = list(self._current.values())
            heapq.heapify(self._entries)

    def discard(self, item: T) -> None:
        self._current.pop(item, None)

    def first(self) -> T | None:
        while self._entries:
            entry = self._entries[0]
            key, serial, item = entry
            if self._current.get(item) is not entry:
                heapq.heappop(self._entries)
            elif key != (now := self._key(item)):
                self._current[item] = (now, serial, item)
                heapq.heapreplace(self._entries, self._current[item])
            else:
                return item
        return None
