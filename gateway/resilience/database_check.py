"""Whether the database responds."""

import asyncio

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import elapsed
from loragate.gateway.resilience.ttl_cache import CachedRead, TTLCache

_DATABASE_SECONDS = 2.0
_CACHE_SECONDS = 1.0


class DatabaseCheck:
    """One per process. However many probes ask, the database is read at most once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: TTLCache[str, str] = TTLCache(_CACHE_SECONDS, 1)

    async def state(self) -> str:
        """Return "ok" or why it is not."""
        state = await self._cache.get("", self._read)
        assert state is not None, "every read finds one"
        return state

    async def _read(self) -> CachedRead[str]:
        try:
            async with asyncio.timeout(_DATABASE_SECONDS), self._store.admin() as admin:
                await admin.tenants.list(limit=1)
        except (StoreError, TimeoutError):
            return CachedRead("not reachable", None, elapsed())
        return CachedRead("ok", None, elapsed())
