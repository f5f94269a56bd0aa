"""Operations on a tenant's imports, for REST and gRPC."""

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.imports import AdapterImport, AdapterImportList, import_object
from loragate.gateway.schemas.resources.imports import ImportCreate
from loragate.gateway.services import Services


async def create(
    use: Services, caller: TenantPrincipal, by: Actor, body: ImportCreate, once: Once
) -> Result[AdapterImport]:
    """Create an import. It is fetched in the background by this process or, if this process dies, by another."""
    use.link.require_base()  # nothing can be checked before an engine has described its base model
    use.imports.check(body.source, caller.tenant_id)
    async with once.attempt(caller.tenant_id, body.model_dump_json(exclude={"token"}).encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            wanted = await scope.imports.create(body.source, body.name, body.alias, resumable=body.token is None)
            result = await attempt.keep(scope.idempotency, import_object(wanted))
    use.imports.start(use, caller, by, wanted, body.token)
    return result


async def list_imports(use: Services, caller: TenantPrincipal, after: str | None, limit: int) -> AdapterImportList:
    """Return a page of imports, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.imports.list(after=after, limit=limit)
    return list_object([import_object(found) for found in page], has_more=page.has_more)


async def get(use: Services, caller: TenantPrincipal, import_id: str) -> AdapterImport:
    """Return an import, with its progress or its result."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return import_object(await scope.imports.get(import_id))


async def cancel(use: Services, caller: TenantPrincipal, by: Actor, import_id: str) -> AdapterImport:
    """Cancel an import and discard what it has fetched. Raise Conflict once it is being checked or has ended."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return import_object(await scope.imports.cancel(import_id))
