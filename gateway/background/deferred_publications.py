"""Publications that found no engine are finished once there is one, by whichever gateway has it."""

import asyncio
import logging
import random

from loragate.adapter_store.errors import NotTried, StoreError
from loragate.adapter_store.publishing.deferred import Due
from loragate.adapter_store.store import Store
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.adapter_probe import EngineProbe
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.generation.priority import share_of_tenant

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


async def keep_finishing(store: Store, link: EngineLink, config: GatewayConfig, every: float = _EVERY_SECONDS) -> None:
    """Until it is cancelled."""
    while True:
        await asyncio.sleep(every * random.uniform(0.5, 1.5))  # noqa: S311
        try:
            while link.ready and (due := await _next_due(store)) is not None:
                await _finish(store, link, config, due)
        except NotTried:
            pass  # it waits on
        except StoreError as error:
            log.warning("a version that waits for the engine was not finished: %s", error)
        except Exception:
            log.exception("a version that waits for the engine was not finished")


async def _next_due(store: Store) -> Due | None:
    async with store.admin() as admin:
        return await admin.published.next_due()


async def _finish(store: Store, link: EngineLink, config: GatewayConfig, due: Due) -> None:
    probe = EngineProbe(link, share_of_tenant(due.tenant_id, due.weight, config))
    async with store.tenant(due.tenant_id, write=True) as scope:
        done = await scope.publications.finish(due.adapter_id, due.version, probe)
    if done is not None:
        log.info("version %d of adapter %s is %s", done.version, done.adapter_id, done.status)
