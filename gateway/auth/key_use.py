"""The times when API keys were last used: collected in memory, written in batches."""

import logging
from datetime import datetime

from loragate.adapter_store.auth.principal import Principal, TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.gateway.resilience.periodic import run_write_loop

log = logging.getLogger(__name__)


class KeyUse:
    """One per process. What cannot be written stays for the next batch; a crash loses one interval."""

    def __init__(self, store: Store, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._last_used: dict[str, datetime] = {}
        self._admin_last_used: dict[str, datetime] = {}

    def record(self, principal: Principal) -> None:
        """Record that the principal's key is used now."""
        if isinstance(principal, TenantPrincipal):
            self._last_used[principal.key_id] = utc_now()
        elif principal.key_id is not None:
            self._admin_last_used[principal.key_id] = utc_now()

    async def run_write_loop(self) -> None:
        """Write what was recorded every `interval` seconds until cancelled, and then once more."""
        await run_write_loop(self.write, self._interval)

    async def write(self) -> None:
        """Write what was recorded since the last time, in one statement, and renew the hashes of these keys."""
        tenants, self._last_used = self._last_used, {}
        operators, self._admin_last_used = self._admin_last_used, {}
        try:
            await self._store.renew_key_hashes()
            if tenants or operators:
                async with self._store.admin(write=True) as admin:
                    await admin.keys.record_use(tenants)
                    await admin.admin_keys.record_use(operators)
        except StoreError as error:
            self._last_used = tenants | self._last_used
            self._admin_last_used = operators | self._admin_last_used
            log.warning("cannot write when keys were last used: %s", error.message)
