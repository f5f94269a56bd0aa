"""Promotion, rollback, disabling and restoration of adapters, shared by REST and gRPC.

A POST is done once for an `Idempotency-Key`: a rollback that is sent again would otherwise undo itself.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.scopes import TenantScope
from loragate.gateway.engine.residency import Holdings
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.adapters import (
    Adapter,
    AdapterVersion,
    Alias,
    adapter_object,
    alias_object,
    version_object,
)
from loragate.gateway.schemas.resources.adapters import Promotion, Rollback, VersionPatch
from loragate.gateway.services import Services

D = TypeVar("D")


async def change_version(
    use: Services, caller: TenantPrincipal, by: Actor, name: str, version: int, body: VersionPatch
) -> AdapterVersion:
    """Disable a version, or enable it again."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        changed = await scope.adapters.enable_version(name, version, body.status == "ready")
    holdings = await use.residency.holdings()
    return version_object(changed, holdings.tier(caller.tenant_id, [changed.digest]))


async def promote(
    use: Services, caller: TenantPrincipal, by: Actor, name: str, body: Promotion, once: Once
) -> Result[Alias]:
    """Point an alias to a single version."""

    async def do(scope: TenantScope, holdings: Holdings) -> Alias:
        targets = await scope.adapters.promote(name, body.alias, version=body.version, from_alias=body.from_alias)
        return alias_object(name, body.alias, targets)

    return await _once(use, caller, by, do, once, name, body)


async def rollback(
    use: Services, caller: TenantPrincipal, by: Actor, name: str, body: Rollback, once: Once
) -> Result[Alias]:
    """Point an alias to what it pointed to before."""

    async def do(scope: TenantScope, holdings: Holdings) -> Alias:
        return alias_object(name, body.alias, await scope.adapters.rollback(name, body.alias))

    return await _once(use, caller, by, do, once, name, body)


async def restore(use: Services, caller: TenantPrincipal, by: Actor, name: str, once: Once) -> Result[Adapter]:
    """Restore a deleted adapter, as it was."""

    async def do(scope: TenantScope, holdings: Holdings) -> Adapter:
        return adapter_object(await scope.adapters.restore(name), holdings)

    return await _once(use, caller, by, do, once, name)


async def restore_version(
    use: Services, caller: TenantPrincipal, by: Actor, name: str, version: int, once: Once
) -> Result[AdapterVersion]:
    """Restore a deleted version."""

    async def do(scope: TenantScope, holdings: Holdings) -> AdapterVersion:
        restored = await scope.adapters.restore_version(name, version)
        return version_object(restored, holdings.tier(caller.tenant_id, [restored.digest]))

    return await _once(use, caller, by, do, once, f"{name}:{version}")


async def _once(
    use: Services,
    caller: TenantPrincipal,
    by: Actor,
    do: Callable[[TenantScope, Holdings], Awaitable[D]],
    once: Once,
    of: str,
    body: BaseModel | None = None,
) -> Result[D]:
    content = (of.encode(), b"" if body is None else body.model_dump_json().encode())
    async with once.attempt(caller.tenant_id, *content) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        holdings = await use.residency.holdings()
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            return await attempt.keep(scope.idempotency, await do(scope, holdings), 200)
