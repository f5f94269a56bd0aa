"""Removal of old rows: events of the audit log and of jobs, by the operator's settings, and expired replies."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from loragate.adapter_store.scopes import AdminScope
from loragate.adapter_store.store import Store
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0
_BATCH = 1000  # rows of one transaction

Purge = Callable[[AdminScope, datetime], Awaitable[int]]


async def run_retention_loop(store: Store, audit_days: int | None, job_event_days: int | None) -> None:
    """Remove old rows once an hour until cancelled; None keeps them for ever."""

    async def remove() -> None:
        await _purge(store, lambda admin, _: admin.expired_responses.purge(_BATCH), timedelta(0))
        if audit_days is not None:
            await purge_audit(store, timedelta(days=audit_days))
        if job_event_days is not None:
            await purge_job_events(store, timedelta(days=job_event_days))

    await periodic("old rows were not removed", remove, _EVERY_SECONDS, log=log, at_once=True)


async def purge_audit(store: Store, age: timedelta) -> int:
    """Remove events of the audit log that are older than `age`; return how many. Raise StoreError."""
    return await _purge(store, lambda admin, before: admin.audit.purge(before, _BATCH), age)


async def purge_job_events(store: Store, age: timedelta) -> int:
    """Remove events of jobs that ended before `age`; return how many. Raise StoreError."""
    return await _purge(store, lambda admin, before: admin.jobs.purge_events(before, _BATCH), age)


async def _purge(store: Store, purge: Purge, age: timedelta) -> int:
    before, removed = await store.earliest_time() - age, 0
    while True:
        async with store.admin(write=True) as admin:
            batch = await purge(admin, before)
        removed += batch
        if batch < _BATCH:
            return removed
