"""/admin/v1/admin-keys."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Operator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.keys import (
    AdminKey,
    AdminKeyList,
    DeletedObject,
    NewAdminKey,
    admin_key_object,
    deleted_object,
    new_admin_key_object,
)
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.resources.admin import AdminKeyCreate

router = APIRouter(prefix="/admin/v1/admin-keys", tags=["admin"])

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


@router.post("", status_code=201)
@describes(NewAdminKey)
async def create_admin_key(
    operator: Operator,
    by: By,
    body: Annotated[AdminKeyCreate, Depends(JsonBody(AdminKeyCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create an admin key. The response contains it as `secret`, this one time."""
    async with once.attempt(None, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier.response()
        async with use.store.admin(write=True, by=by) as admin:
            new = await admin.admin_keys.create(body.name, expires_at=body.expires_at)
            return (await attempt.keep(admin.idempotency, new_admin_key_object(new))).response()


@router.get("")
@describes(AdminKeyList)
async def list_admin_keys(
    operator: Operator, use: Use, after: str | None = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List admin keys, newest first, including revoked ones, never with a secret."""
    async with use.store.admin() as admin:
        page = await admin.admin_keys.list(after=after, limit=limit)
    return json_response(list_object([admin_key_object(key) for key in page], has_more=page.has_more))


@router.get("/{key_id}")
@describes(AdminKey)
async def get_admin_key(key_id: str, operator: Operator, use: Use) -> Response:
    """Get an admin key, without its secret."""
    async with use.store.admin() as admin:
        key = await admin.admin_keys.get(key_id)
    return json_response(admin_key_object(key))


@router.delete("/{key_id}")
@describes(DeletedObject)
async def revoke_admin_key(key_id: str, operator: Operator, by: By, use: Use) -> Response:
    """Revoke an admin key. It stops working at once, or within seconds on processes that cannot be notified."""
    async with use.store.admin(write=True, by=by) as admin:
        key = await admin.admin_keys.revoke(key_id)
    return json_response(deleted_object("admin_key", key.id))
