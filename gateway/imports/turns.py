"""Places for imports, given to tenants in turn."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """`places` imports may run at once. A free place goes to the tenant that has the fewest; of these, to the first in
    turn. A tenant that gets a place goes to the end."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the tenant whose turn is farthest away is last

    @asynccontextmanager
    async def place(self, tenant_id: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it during the block."""
        if self._free:
            self._take(tenant_id)
        else:
            await self._wait(tenant_id)
        try:
            yield
        finally:
            self._leave(tenant_id)

    async def _wait(self, tenant_id: str) -> None:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant_id, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._leave(tenant_id)
            else:
                self._forget(tenant_id, given)
            raise

    def _take(self, tenant_id: str) -> None:
        self._free -= 1
        self._running[tenant_id] += 1

    def _leave(self, tenant_id: str) -> None:
        self._free += 1
        self._running[tenant_id] -= 1
        if not self._running[tenant_id]:
            del self._running[tenant_id]
        if self._waiting:
            chosen = min(self._waiting, key=lambda each: self._running[each])  # the first of the smallest
            queue = self._waiting.pop(chosen)
            given = queue.popleft()
            if queue:
                self._waiting[chosen] = queue
            self._take(chosen)
            given.set_result(None)

    def _forget(self, tenant_id: str, given: asyncio.Future[None]) -> None:
        queue = self._waiting[tenant_id]
        queue.remove(given)
        if not queue:
            del self._waiting[tenant_id]
