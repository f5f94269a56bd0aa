"""Maintenance of stored responses: what has expired, or belonged to deleted tenants, is removed, what was sealed under
a previous secret is resealed, and the rest is measured."""

import logging
from datetime import timedelta

from loragate.adapter_store.store import Store
from loragate.gateway.background.response_metrics import ResponseMetrics
from loragate.gateway.metering.retention import purge_older
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 300.0
_QUEUE_SECONDS = 15.0


async def run_response_retention_loop(store: Store, metrics: ResponseMetrics) -> None:
    """Maintain stored responses periodically until cancelled."""
    await periodic(
        "stored responses were not maintained", lambda: maintain(store, metrics), _EVERY_SECONDS, log=log, soon=True
    )


async def run_response_queue_loop(store: Store, metrics: ResponseMetrics) -> None:
    """Measure the queue of background responses periodically until cancelled."""

    async def measure() -> None:
        async with store.admin() as admin:
            metrics.queue(*await admin.response_queue.waiting())

    await periodic("the queue of responses was not measured", measure, _QUEUE_SECONDS, log=log)


async def maintain(store: Store, metrics: ResponseMetrics) -> None:
    """Remove and reseal what is due. Raise StoreError."""
    now = timedelta(0)
    responses = await purge_older(store, now, lambda admin, _, limit: admin.response_queue.purge_responses(limit))
    talks = await purge_older(store, now, lambda admin, _, limit: admin.response_queue.purge_conversations(limit))
    metrics.pruned(responses, talks)
    await purge_older(store, now, lambda admin, _, limit: admin.response_queue.purge_deleted_tenants(limit))
    async with store.admin() as admin:
        tenants = await admin.response_queue.tenants_to_reseal(store.secret_id)
    for tenant_id in tenants:
        resealed = True
        while resealed:
            async with store.tenant(tenant_id, write=True) as scope:
                resealed = bool(await scope.resealing.some())
    async with store.admin() as admin:
        metrics.stored(await admin.response_queue.use())
