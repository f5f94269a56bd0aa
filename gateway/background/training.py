"""What expires of the training API: sessions of clients that died, checkpoints, and the commands of ended runs."""

import logging
from datetime import timedelta

from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import SESSION_LIFETIME
from loragate.gateway.metering.retention import purge_older
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 30.0
_KEPT = timedelta(days=1)  # the results of an ended run's commands


async def run_training_retention_loop(store: Store) -> None:
    """Remove what has expired, until cancelled."""

    async def remove() -> None:
        await expire_training(store)
        await purge_older(store, _KEPT, lambda admin, before, limit: admin.training_queue.purge(before, limit))

    await periodic("expired training was not removed", remove, _EVERY_SECONDS, log=log)


async def expire_training(store: Store, lifetime: timedelta = SESSION_LIFETIME) -> None:
    """End sessions without a heartbeat for `lifetime`, fail commands behind a gap, delete expired checkpoints. Raise
    StoreError."""
    before = await store.earliest_time() - lifetime
    async with store.admin() as admin:
        silent = await admin.training_queue.tenants_with_expired_sessions(before)
        expired = await admin.training_queue.tenants_with_expired_checkpoints()
        gaps = await admin.training_queue.has_gaps()
    for tenant_id in {*silent, *expired}:
        async with store.tenant(tenant_id, write=True) as scope:
            await scope.training_sessions.expire(before)
            await scope.training_checkpoints.expire()
    if gaps:
        async with store.admin(write=True) as admin:
            await admin.training_queue.fail_gaps()
