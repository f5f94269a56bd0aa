"""/admin/v1/tenants."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.adapter_store.limits import UNLIMITED
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Administrator, By, Operator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.admin import Tenant, TenantList, tenant_object
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.keys import (
    ApiKeyList,
    DeletedObject,
    NewApiKey,
    deleted_object,
    key_object,
    new_key_object,
)
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.resources.admin import KeyCreate, TenantCreate, TenantPatch

router = APIRouter(prefix="/admin/v1/tenants", tags=["admin"])

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


@router.post("", status_code=201)
@describes(Tenant)
async def create_tenant(
    operator: Operator,
    by: By,
    body: Annotated[TenantCreate, Depends(JsonBody(TenantCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create a tenant. Responds 409 if the name is taken."""
    async with once.attempt(None, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier.response()
        async with use.store.admin(write=True, by=by) as admin:
            limits = use.config.default_limits.merged(body.limits.changes)
            tenant = await admin.tenants.create(body.name, weight=body.weight, limits=limits, signers=body.signers)
            return (await attempt.keep(admin.idempotency, tenant_object(tenant))).response()


@router.get("")
@describes(TenantList)
async def list_tenants(
    operator: Operator, use: Use, after: str | None = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List tenants, newest first."""
    async with use.store.admin() as admin:
        page = await admin.tenants.list(after=after, limit=limit)
    return json_response(list_object([tenant_object(tenant) for tenant in page], has_more=page.has_more))


@router.get("/{tenant_id}")
@describes(Tenant)
async def get_tenant(tenant_id: str, caller: Administrator, use: Use) -> Response:
    """Get a tenant."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        tenant = await admin.tenants.get(tenant_id)
    return json_response(tenant_object(tenant))


@router.patch("/{tenant_id}")
@describes(Tenant, errors=(409,))
async def update_tenant(
    tenant_id: str,
    operator: Operator,
    by: By,
    body: Annotated[TenantPatch, Depends(JsonBody(TenantPatch))],
    use: Use,
) -> Response:
    """Change the fields that are given."""
    async with use.store.admin(write=True, by=by) as admin:
        limits = body.limits.changes if body.limits else {}
        tenant = await admin.tenants.update(
            tenant_id, name=body.name, weight=body.weight, limits=limits, signers=body.signers
        )
    return json_response(tenant_object(tenant))


@router.delete("/{tenant_id}")
@describes(DeletedObject)
async def delete_tenant(tenant_id: str, operator: Operator, by: By, use: Use) -> Response:
    """Delete a tenant with its adapters and keys."""
    async with use.store.admin(write=True, by=by) as admin:
        await admin.tenants.delete(tenant_id)
    return json_response(deleted_object("tenant", tenant_id))


@router.post("/{tenant_id}/keys", status_code=201)
@describes(NewApiKey)
async def create_key(
    tenant_id: str,
    caller: Administrator,
    by: By,
    body: Annotated[KeyCreate, Depends(JsonBody(KeyCreate, optional=True))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create a key. The response contains it as `secret`, this one time."""
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier.response()
        async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
            new = await admin.keys.create(
                tenant_id,
                name=body.name,
                scopes=body.scopes,
                expires_at=body.expires_at,
                limits=UNLIMITED.merged(body.limits.changes),
            )
            return (await attempt.keep(admin.idempotency, new_key_object(new))).response()


@router.get("/{tenant_id}/keys")
@describes(ApiKeyList)
async def list_keys(
    tenant_id: str, caller: Administrator, use: Use, after: str | None = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List keys, newest first, including revoked ones, never with a secret."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.keys.list(tenant_id, after=after, limit=limit)
    return json_response(list_object([key_object(key) for key in page], has_more=page.has_more))
