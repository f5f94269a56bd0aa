"""Removal of the ledger's old rows. The totals by hour and day are small and stay."""

import asyncio
import logging
from datetime import timedelta

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0
_BATCH = 1000  # rows of one transaction


async def keep_purging(store: Store, days: int | None) -> None:
    """Once an hour, until it is cancelled; at once where rows are kept for ever (None)."""
    while days is not None:
        try:
            await purge(store, timedelta(days=days))
        except StoreError as error:
            log.warning("old usage is still there: %s", error)
        await asyncio.sleep(_EVERY_SECONDS)


async def purge(store: Store, age: timedelta) -> int:
    """Removes what is older, a batch at a time; returns how many rows. Raises StoreError."""
    before, removed = utc_now() - age, 0
    while True:
        async with store.admin(write=True) as admin:
            batch = await admin.settlement.purge(before, _BATCH)
        removed += batch
        if batch < _BATCH:
            return removed
