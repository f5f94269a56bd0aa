"""Operations on a tenant's adapters, for REST and gRPC."""

from loragate.adapter_store.adapters import adapter as stored
from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS, AliasTarget, VersionStatus
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.scopes import TenantScope
from loragate.finetune.jobs.model_name import parse_tuned_name
from loragate.gateway.engine.adapter_probe import EngineProbe
from loragate.gateway.generation.request import share_of
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.adapters import (
    Adapter,
    AdapterList,
    AdapterVersion,
    AdapterVersionList,
    Alias,
    DeletedAdapter,
    DeletedAlias,
    adapter_object,
    alias_object,
    deleted_adapter,
    deleted_alias,
    deleted_version,
    version_object,
)
from loragate.gateway.objects.common import list_object
from loragate.gateway.schemas.resources.adapters import AdapterPatch, AliasPut
from loragate.gateway.services import Services
from loragate.gateway.uploads.adapter_upload import AdapterUpload


async def publish(
    use: Services, caller: TenantPrincipal, by: Actor, upload: AdapterUpload, once: Once
) -> Result[AdapterVersion]:
    """Publish the next version of the upload's name, once for `once`. It stays `verifying` until an engine has tried
    it."""
    content = () if once.key is None else await use.file_threads.run(caller.tenant_id, upload.identity)
    async with once.attempt(caller.tenant_id, *content) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        holdings = await use.residency.holdings()
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            version = await _publish(use, caller, scope, upload)
            residency = holdings.tier(caller.tenant_id, [version.digest])
            return await attempt.keep(scope.idempotency, version_object(version, residency))


async def publish_import(
    use: Services, caller: TenantPrincipal, by: Actor, upload: AdapterUpload, wanted: Import
) -> int:
    """Publish what the import `wanted` has fetched; return the number of the new version."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return (await _publish(use, caller, scope, upload, wanted)).version


async def _publish(
    use: Services, caller: TenantPrincipal, scope: TenantScope, upload: AdapterUpload, wanted_by: Import | None = None
) -> stored.AdapterVersion:
    return await scope.publisher.publish(
        upload.name,
        upload.config_json,
        upload.tensors,
        probe=EngineProbe(use.link, share_of(caller, None, use.config)),
        alias=upload.alias or DEFAULT_ALIAS,
        lineage=upload.lineage,
        signature=upload.signature,
        tags=upload.tags,
        description=upload.description,
        may_wait=True,
        wanted_by=wanted_by,
    )


async def list_adapters(
    use: Services, caller: TenantPrincipal, wanted: AdapterFilter, after: str | None, limit: int
) -> AdapterList:
    """Return a page of adapters, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.adapters.list(wanted, after=after, limit=limit)
    holdings = await use.residency.holdings()
    return list_object([adapter_object(adapter, holdings) for adapter in page], has_more=page.has_more)


async def get(use: Services, caller: TenantPrincipal, name: str) -> Adapter:
    """Return an adapter, by its name or by the name of the model that a job has made."""
    async with use.store.tenant(caller.tenant_id) as scope:
        tuned = parse_tuned_name(name)
        made = tuned is not None and await scope.jobs.has_made(name)
        adapter = await scope.adapters.get(tuned.adapter if tuned is not None and made else name)
    return adapter_object(adapter, await use.residency.holdings())


async def update(use: Services, caller: TenantPrincipal, by: Actor, name: str, body: AdapterPatch) -> Adapter:
    """Change the fields that `body` contains."""
    enabled = None if body.status is None else body.status == "ready"
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        changed = await scope.adapters.update(
            name, limits=body.limits.changes, tags=body.tags, description=body.description, enabled=enabled
        )
    return adapter_object(changed, await use.residency.holdings())


async def delete(use: Services, caller: TenantPrincipal, by: Actor, name: str) -> DeletedAdapter:
    """Delete an adapter with its versions and aliases. Running requests finish on their version."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        adapter = await scope.adapters.get(name)
        await scope.adapters.delete(name)
    return deleted_adapter(adapter.id, name)


async def list_versions(
    use: Services,
    caller: TenantPrincipal,
    name: str,
    after: int | None,
    limit: int,
    status: VersionStatus | None = None,
) -> AdapterVersionList:
    """Return a page of versions, highest number first: those with `status`, or else all published ones. The cursor is
    a version's number."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.adapters.versions(name, after=after, limit=limit, status=status)
    holdings = await use.residency.holdings()
    data = [version_object(version, holdings.tier(caller.tenant_id, [version.digest])) for version in page]
    return list_object(data, has_more=page.has_more, cursor="version")


async def get_version(use: Services, caller: TenantPrincipal, name: str, version: int) -> AdapterVersion:
    """Return a version, which may also be waiting for an engine or have been rejected."""
    async with use.store.tenant(caller.tenant_id) as scope:
        try:
            found = await scope.adapters.version(name, version)
        except NotFound:
            awaited = await scope.publisher.awaited(name, version)
            if awaited is None:
                raise
            found = awaited
    holdings = await use.residency.holdings()
    return version_object(found, holdings.tier(caller.tenant_id, [found.digest]))


async def delete_version(use: Services, caller: TenantPrincipal, by: Actor, name: str, version: int) -> DeletedAdapter:
    """Delete a version, or give up one that waits for an engine. Raise Conflict while an alias points to it."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        found = await scope.publisher.give_up(name, version)
        if found is None:
            found = await scope.adapters.version(name, version)
            await scope.adapters.delete_version(name, version)
    return deleted_version(found.adapter_id, name, version)


async def set_alias(use: Services, caller: TenantPrincipal, by: Actor, name: str, alias: str, body: AliasPut) -> Alias:
    """Point an alias, which need not exist yet, to these versions, by weight."""
    targets = [AliasTarget(target.version, target.weight) for target in body.targets]
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        placed = await scope.adapters.set_alias(name, alias, targets)
    return alias_object(name, alias, placed)


async def delete_alias(use: Services, caller: TenantPrincipal, by: Actor, name: str, alias: str) -> DeletedAlias:
    """Delete an alias but not its versions. Raise NotFound, and Conflict for the default alias."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        adapter_id = await scope.adapters.delete_alias(name, alias)
    return deleted_alias(adapter_id, name, alias)
