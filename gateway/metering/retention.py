"""Removal of the ledger's old rows. The totals by hour and day are small and stay."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from loragate.adapter_store.scopes import AdminScope
from loragate.adapter_store.store import Store
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0
_BATCH = 1000  # rows of one transaction

Remove = Callable[[AdminScope, datetime, int], Awaitable[int]]


async def run_purge_loop(store: Store, days: int | None) -> None:
    """Purge the ledger once an hour until cancelled; return at once if rows are kept for ever (None)."""
    if days is not None:
        age = timedelta(days=days)
        await periodic("old usage was not purged", lambda: purge(store, age), _EVERY_SECONDS, log=log, soon=True)


async def purge(store: Store, age: timedelta) -> int:
    """Remove rows older than `age` in batches; return how many were removed. Raise StoreError."""
    return await purge_older(store, age, lambda admin, before, limit: admin.settlement.purge(before, limit))


async def purge_older(store: Store, age: timedelta, remove: Remove) -> int:
    """Remove what is older than `age` in batches, by a call that removes at most so many rows from before a time;
    return how many were removed. Raise StoreError."""
    before, removed = await store.earliest_time() - age, 0
    while True:
        async with store.admin(write=True) as admin:
            batch = await remove(admin, before, _BATCH)
        removed += batch
        if batch < _BATCH:
            return removed
