"""Imports whose process has died, or was stopped, go on in whichever gateway has time for them."""

import asyncio
import logging
import random

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.imports.lease import Taken, Waiting
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


async def keep_resuming(use: Services, every: float = _EVERY_SECONDS) -> None:
    """Until it is cancelled."""
    while True:
        await asyncio.sleep(every * random.uniform(0.5, 1.5))  # noqa: S311
        try:
            while use.link.manifest is not None and use.imports.has_time and (waiting := await _next(use)) is not None:
                await _resume(use, waiting)
        except StoreError as error:
            log.warning("imports that nobody works on were not taken: %s", error)
        except Exception:
            log.exception("imports that nobody works on were not taken")


async def _next(use: Services) -> Waiting | None:
    async with use.store.admin() as admin:
        return await admin.published.next_import()


async def _resume(use: Services, waiting: Waiting) -> None:
    async with use.store.tenant(waiting.tenant_id, write=True) as scope:
        taken: Taken | None = await scope.import_work.take(waiting.import_id)
    if taken is None:
        return
    log.info("import %s of %s goes on here", waiting.import_id, waiting.tenant_id)
    publisher = frozenset({Scope.ADAPTERS_WRITE})
    caller = TenantPrincipal(waiting.tenant_id, "", waiting.weight, "", publisher)
    use.imports.start(use, caller, Actor(taken.actor), taken.wanted, None)
