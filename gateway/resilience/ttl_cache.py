"""A cache of what was read from the database a moment ago, with a time to live.

Entries are immutable and valid for at most `lifetime` seconds from the moment before they were read, so a change takes
effect within that time even if its change notice is lost. The result of a read that a change notice overtook is
returned but not cached. There is only one such cache between a request and the database, in this process.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from loragate.adapter_store.timestamps import elapsed

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CachedRead(Generic[V]):
    """`value` belongs to `tenant_id`; it was true at `read_at`, by `elapsed`, and is valid for `valid_for` seconds."""

    value: V
    tenant_id: str | None
    read_at: float
    valid_for: float = math.inf


class TTLCache(Generic[K, V]):
    """Holds at most `max_entries`, of which it evicts the oldest first. Only what was found is cached."""

    def __init__(self, lifetime: float, max_entries: int) -> None:
        self._lifetime = lifetime
        self._max_entries = max_entries
        self._entries: OrderedDict[K, tuple[CachedRead[V], float]] = OrderedDict()  # with their expiry
        self._reads: dict[K, asyncio.Task[CachedRead[V] | None]] = {}

    def peek(self, key: K) -> V | None:
        """Return the cached value, if there is one."""
        entry = self._entries.get(key)
        return entry[0].value if entry is not None and elapsed() < entry[1] else None

    async def get(self, key: K, read: Callable[[], Awaitable[CachedRead[V] | None]]) -> V | None:
        """Return the cached value, or else what `read` returns. Concurrent callers share one read."""
        value = self.peek(key)
        if value is not None:
            return value
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.create_task(self._read(key, read))
        result = await asyncio.shield(task)
        return None if result is None else result.value

    def discard(self, tenant_id: str | None) -> None:
        """Discard what was read before a change of the tenant's data; None stands for all tenants."""
        self._reads.clear()
        if tenant_id is None:
            self._entries.clear()
            return
        for key in [key for key, (entry, _) in self._entries.items() if entry.tenant_id == tenant_id]:
            del self._entries[key]

    async def _read(self, key: K, read: Callable[[], Awaitable[CachedRead[V] | None]]) -> CachedRead[V] | None:
        this = asyncio.current_task()
        try:
            result = await read()
        finally:
            current = self._reads.get(key) is this
            if current:
                del self._reads[key]
        if current:  # no change notice has arrived meanwhile
            self._store(key, result)
        return result

    def _store(self, key: K, result: CachedRead[V] | None) -> None:
        self._entries.pop(key, None)
        if result is not None:
            self._entries[key] = result, result.read_at + min(self._lifetime, result.valid_for)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
