"""Removal of old rows: events of the audit log and of jobs, by the operator's settings, and expired replies."""

import logging
from datetime import timedelta

from loragate.adapter_store.store import Store
from loragate.gateway.metering.retention import purge_older
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0


async def run_retention_loop(store: Store, audit_days: int | None, job_event_days: int | None) -> None:
    """Remove old rows once an hour until cancelled; None keeps them for ever."""

    async def remove() -> None:
        await purge_older(store, timedelta(0), lambda admin, _, limit: admin.expired_responses.purge(limit))
        if audit_days is not None:
            await purge_audit(store, timedelta(days=audit_days))
        if job_event_days is not None:
            await purge_job_events(store, timedelta(days=job_event_days))

    await periodic("old rows were not removed", remove, _EVERY_SECONDS, log=log, soon=True)


async def purge_audit(store: Store, age: timedelta) -> int:
    """Remove events of the audit log that are older than `age`; return how many. Raise StoreError."""
    return await purge_older(store, age, lambda admin, before, limit: admin.audit.purge(before, limit))


async def purge_job_events(store: Store, age: timedelta) -> int:
    """Remove events of jobs that ended before `age`; return how many. Raise StoreError."""
    return await purge_older(store, age, lambda admin, before, limit: admin.jobs.purge_events(before, limit))
