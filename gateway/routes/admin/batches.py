"""/admin/v1/batches: the batches of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.batches.batch import BatchStatus
from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.requirements import Administrator, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.batches import AdminBatch, AdminBatchList, admin_batch_object
from loragate.gateway.objects.common import list_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import batches as actions

router = APIRouter(prefix="/admin/v1/batches", tags=["admin"])


@router.get("")
@describes(AdminBatchList)
async def list_all_batches(
    caller: Administrator,
    use: Use,
    tenant: Annotated[str | None, Query(max_length=64, description="A tenant's id.")] = None,
    status: Annotated[BatchStatus | None, Query(description="Only batches with this status.")] = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """List the batches of all tenants, newest first, without their contents."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.batches.list(tenant_id=tenant, status=status, after=after, limit=limit)
    return json_response(list_object([admin_batch_object(each) for each in page], has_more=page.has_more))


@router.get("/{batch_id}")
@describes(AdminBatch)
async def get_tenant_batch(batch_id: str, caller: Administrator, use: Use) -> Response:
    """Get a batch, without its contents."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        return json_response(admin_batch_object(await admin.batches.get(batch_id)))


@router.post("/{batch_id}/cancel")
@describes(AdminBatch, errors=(409,))
async def cancel_tenant_batch(batch_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Cancel a batch, as its tenant can: it keeps the results that it has. Responds 409 if it has ended, or all its
    lines have been run."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        tenant_id = (await admin.batches.get(batch_id)).tenant_id
    await actions.cancel(use, tenant_id, by, batch_id)
    async with use.store.admin(within=caller.tenant_id) as admin:
        return json_response(admin_batch_object(await admin.batches.get(batch_id)))
