"""Counts of the requests that were rejected before any work was done for them, by tenant."""

import logging
from collections import Counter

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.periods import Width, floor
from loragate.adapter_store.usage.service_quality import Reason
from loragate.adapter_store.usage.settlement import RejectionKey
from loragate.gateway.resilience.periodic import run_write_loop

log = logging.getLogger(__name__)

_EVERY_SECONDS = 2.0


class Rejections:
    """Counts rejected requests. One per process. A batch that cannot be written is added to the next; a crash loses one
    interval."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: Counter[RejectionKey] = Counter()

    def record(self, tenant_id: str, reason: Reason) -> None:
        """Count a request of the tenant that was rejected just now."""
        self._counts[tenant_id, floor(utc_now(), Width.HOUR), reason] += 1

    async def run_write_loop(self) -> None:
        """Write the counts periodically until cancelled, and then once more."""
        await run_write_loop(self.write, _EVERY_SECONDS)

    async def write(self) -> None:
        """Write what was counted since the last write."""
        if not self._counts:
            return
        batch, self._counts = self._counts, Counter()
        try:
            async with self._store.admin(write=True) as admin:
                await admin.settlement.add_rejections(batch)
        except StoreError as error:
            self._counts.update(batch)
            log.warning("the counts of rejected requests were not written: %s", error)
