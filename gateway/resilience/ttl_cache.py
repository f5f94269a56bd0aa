"""What the database said a moment ago, for those who ask often.

Snapshots are immutable and count for at most `lifetime` seconds from the moment before they were read, so that what
changed meanwhile counts no later than that even where its change notice was lost. A read that a notice overtook
is answered, but not kept. There is one such cache between a request and the database, in this process.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from loragate.gateway.resilience.clock import elapsed

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[V]):
    """`value` is `tenant_id`'s; it was true at `read_at`, by `elapsed`, and is for `good_for` seconds from then."""

    value: V
    tenant_id: str | None
    read_at: float
    good_for: float = math.inf


class Snapshots(Generic[K, V]):
    """At most `most` of them, the oldest go first. Only what was found is kept."""

    def __init__(self, lifetime: float, most: int) -> None:
        self._lifetime = lifetime
        self._most = most
        self._kept: OrderedDict[K, tuple[Snapshot[V], float]] = OrderedDict()  # with the end of their time
        self._reads: dict[K, asyncio.Task[Snapshot[V] | None]] = {}

    def was_here(self, key: K) -> bool:
        """It is known, though perhaps its time is over."""
        return key in self._kept

    async def of(self, key: K, read: Callable[[], Awaitable[Snapshot[V] | None]]) -> V | None:
        """What is known, or else what `read` says. Those who wait for the same share one read."""
        kept = self._kept.get(key)
        if kept is not None and elapsed() < kept[1]:
            return kept[0].value
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.create_task(self._read(key, read))
        snapshot = await asyncio.shield(task)
        return None if snapshot is None else snapshot.value

    def forget(self, tenant_id: str | None) -> None:
        """Something of the tenant changed (None: of anybody): what was read before no longer counts."""
        self._reads.clear()
        if tenant_id is None:
            self._kept.clear()
            return
        for key in [key for key, (snapshot, _) in self._kept.items() if snapshot.tenant_id == tenant_id]:
            del self._kept[key]

    async def _read(self, key: K, read: Callable[[], Awaitable[Snapshot[V] | None]]) -> Snapshot[V] | None:
        this = asyncio.current_task()
        try:
            snapshot = await read()
        finally:
            current = self._reads.get(key) is this
            if current:
                del self._reads[key]
        if current:  # no notice came meanwhile
            self._keep(key, snapshot)
        return snapshot

    def _keep(self, key: K, snapshot: Snapshot[V] | None) -> None:
        self._kept.pop(key, None)
        if snapshot is not None:
            self._kept[key] = snapshot, snapshot.read_at + min(self._lifetime, snapshot.good_for)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
