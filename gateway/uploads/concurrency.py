"""The limit of a tenant's concurrent uploads, so that slow ones use up neither all connections nor the disk.

Each upload may be as slow as the pace allows; this limits their number.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from loragate.gateway.errors import TooManyRequests

MAX_UPLOADS = 32  # of one tenant in one process


class UploadLimiter:
    """One per process."""

    def __init__(self, max_uploads: int = MAX_UPLOADS) -> None:
        self._max_uploads = max_uploads
        self._taken: Counter[str] = Counter()
        self._digest_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextmanager
    def acquire(self, tenant_id: str) -> Iterator[None]:
        """Hold a slot during the block. Raise TooManyRequests."""
        if self._taken[tenant_id] >= self._max_uploads:
            raise TooManyRequests(
                f"This tenant has {self._max_uploads} running uploads already; wait for one to finish.",
                code="too_many_uploads",
            )
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]

    def digest_lock(self, tenant_id: str) -> asyncio.Lock:
        """Return the lock of the tenant's computations of digests over gigabytes, of which it has one at a time."""
        lock = self._digest_locks.get(tenant_id)
        if lock is None:
            lock = self._digest_locks[tenant_id] = asyncio.Lock()
        return lock
