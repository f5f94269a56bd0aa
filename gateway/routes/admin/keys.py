"""/admin/v1/keys."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Administrator, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.keys import ApiKey, DeletedObject, NewApiKey, deleted_object, key_object, new_key_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.resources.admin import KeyRotate
from loragate.gateway.schemas.resources.limits import LimitsPatch

router = APIRouter(prefix="/admin/v1/keys", tags=["admin"])


@router.get("/{key_id}")
@describes(ApiKey)
async def get_key(key_id: str, caller: Administrator, use: Use) -> Response:
    """Get a key, without its secret."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        key = await admin.keys.get(key_id)
    return json_response(key_object(key))


@router.patch("/{key_id}")
@describes(ApiKey)
async def limit_key(
    key_id: str,
    caller: Administrator,
    by: By,
    body: Annotated[LimitsPatch, Depends(JsonBody(LimitsPatch))],
    use: Use,
) -> Response:
    """Change those of the key's `limits` that are given. They apply in addition to the tenant's own limits."""
    async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
        key = await admin.keys.limit(key_id, body.limits.changes)
    return json_response(key_object(key))


@router.delete("/{key_id}")
@describes(DeletedObject)
async def revoke_key(key_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Revoke a key. It stops working at once, or within seconds on processes that cannot be notified."""
    async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
        key = await admin.keys.revoke(key_id)
    return json_response(deleted_object("api_key", key.id))


@router.post("/{key_id}/rotate", status_code=201)
@describes(NewApiKey)
async def rotate_key(
    key_id: str,
    caller: Administrator,
    by: By,
    body: Annotated[KeyRotate, Depends(JsonBody(KeyRotate, optional=True))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Replace a key by a new one. The old key keeps working for `grace_seconds`."""
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier.response()
        async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
            new = await admin.keys.rotate(key_id, grace_seconds=body.grace_seconds)
            return (await attempt.keep(admin.idempotency, new_key_object(new))).response()
