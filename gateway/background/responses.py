"""Maintenance of stored responses: what has expired, or belonged to deleted tenants, is removed, and what was sealed
under a previous secret is resealed."""

import logging
from datetime import timedelta

from loragate.adapter_store.store import Store
from loragate.gateway.metering.retention import purge_older
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 300.0


async def run_response_retention_loop(store: Store) -> None:
    """Maintain stored responses periodically until cancelled."""
    await periodic(
        "stored responses were not maintained", lambda: maintain(store), _EVERY_SECONDS, log=log, at_once=True
    )


async def maintain(store: Store) -> None:
    """Remove and reseal what is due. Raise StoreError."""
    now = timedelta(0)
    await purge_older(store, now, lambda admin, _, limit: admin.response_queue.purge(limit))
    await purge_older(store, now, lambda admin, _, limit: admin.response_queue.purge_deleted_tenants(limit))
    async with store.admin() as admin:
        tenants = await admin.response_queue.tenants_to_reseal(store.secret_id)
    for tenant_id in tenants:
        resealed = True
        while resealed:
            async with store.tenant(tenant_id, write=True) as scope:
                resealed = bool(await scope.resealing.some())
