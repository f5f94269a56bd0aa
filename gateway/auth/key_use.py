"""When keys were last used: noted in memory, written in batches."""

import logging
from datetime import datetime

from loragate.adapter_store.auth.principal import Principal, TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.gateway.resilience.periodic import write_for_ever

log = logging.getLogger(__name__)


class KeyUse:
    """One per process. What could not be written is kept for the next batch; a crash loses one interval."""

    def __init__(self, store: Store, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._last_used: dict[str, datetime] = {}

    def note(self, principal: Principal) -> None:
        """It calls just now."""
        if isinstance(principal, TenantPrincipal):
            self._last_used[principal.key_id] = utc_now()

    async def write_for_ever(self) -> None:
        """Writes what was noted every `interval` seconds until cancelled, and then once more."""
        await write_for_ever(self.write, self._interval)

    async def write(self) -> None:
        """One statement for all keys noted since the last time."""
        if not self._last_used:
            return
        batch, self._last_used = self._last_used, {}
        try:
            async with self._store.admin(write=True) as admin:
                await admin.keys.note_use(batch)
        except StoreError as error:
            self._last_used = batch | self._last_used
            log.warning("when keys were last used is not written: %s", error.message)
