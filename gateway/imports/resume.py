"""Resumption of imports whose process has died or was stopped, in any gateway that has capacity."""

import logging

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.imports.lease import TakenImport, WaitingImport
from loragate.gateway.resilience.periodic import periodic
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


async def run_resume_loop(use: Services, every: float = _EVERY_SECONDS) -> None:
    """Resume abandoned imports periodically until cancelled."""

    async def resume() -> None:
        while use.link.manifest is not None and use.imports.has_capacity and (waiting := await _next(use)) is not None:
            await _resume(use, waiting)

    await periodic("abandoned imports were not resumed", resume, every, log=log)


async def _next(use: Services) -> WaitingImport | None:
    async with use.store.admin() as admin:
        return await admin.published.next_import()


async def _resume(use: Services, waiting: WaitingImport) -> None:
    async with use.store.tenant(waiting.tenant_id, write=True) as scope:
        taken: TakenImport | None = await scope.import_lease.take(waiting.import_id)
    if taken is None:
        return
    log.info("import %s of %s is resumed here", waiting.import_id, waiting.tenant_id)
    caller = TenantPrincipal(
        tenant_id=waiting.tenant_id,
        tenant_name="",
        weight=waiting.weight,
        key_id="",
        scopes=frozenset({Scope.ADAPTERS_WRITE}),
    )
    use.imports.start(use, caller, Actor(taken.actor), taken.wanted, None)
