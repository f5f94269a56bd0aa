"""Deferred publications: versions that were uploaded without an engine are tried once a gateway has one."""

import logging
from contextlib import suppress

from loragate.adapter_store.errors import NotTried
from loragate.adapter_store.publishing.deferred import Due
from loragate.adapter_store.store import Store
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.adapter_probe import EngineProbe
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.generation.request import share_of_tenant
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


async def run_deferred_publication_loop(
    store: Store, link: EngineLink, config: GatewayConfig, every: float = _EVERY_SECONDS
) -> None:
    """Finish deferred publications periodically until cancelled."""

    async def finish_due() -> None:
        with suppress(NotTried):  # the publication keeps waiting
            while link.ready and (due := await _next_due(store)) is not None:
                await _finish(store, link, config, due)

    await periodic("a version that waits for the engine was not finished", finish_due, every, log=log)


async def _next_due(store: Store) -> Due | None:
    async with store.admin() as admin:
        return await admin.published.next_due()


async def _finish(store: Store, link: EngineLink, config: GatewayConfig, due: Due) -> None:
    probe = EngineProbe(link, share_of_tenant(due.tenant_id, due.weight, config))
    async with store.tenant(due.tenant_id, write=True) as scope:
        done = await scope.publisher.finish(due.adapter_id, due.version, probe)
    if done is not None:
        log.info("version %d of adapter %s is %s", done.version, done.adapter_id, done.status)
