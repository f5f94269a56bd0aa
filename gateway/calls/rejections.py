"""How many requests of each tenant were turned away before anything was done for them."""

import logging
from collections import Counter

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.periods import Width, floor
from loragate.adapter_store.usage.service_quality import Reason
from loragate.adapter_store.usage.settlement import TurnedAwayKey
from loragate.gateway.resilience.periodic import run_write_loop

log = logging.getLogger(__name__)

_EVERY_SECONDS = 2.0


class TurnedAway:
    """One per process. What could not be written is kept for the next batch; a crash loses one interval."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: Counter[TurnedAwayKey] = Counter()

    def note(self, tenant_id: str, reason: Reason) -> None:
        """Another one, just now."""
        self._counts[tenant_id, floor(utc_now(), Width.HOUR), reason] += 1

    async def keep_writing(self) -> None:
        """Until cancelled, and then once more."""
        await run_write_loop(self.write, _EVERY_SECONDS)

    async def write(self) -> None:
        """All that was noted since the last time."""
        if not self._counts:
            return
        batch, self._counts = self._counts, Counter()
        try:
            async with self._store.admin(write=True) as admin:
                await admin.settlement.turn_away(batch)
        except StoreError as error:
            self._counts.update(batch)
            log.warning("how many requests were turned away is not written: %s", error)
