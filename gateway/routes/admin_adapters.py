"""/admin/v1/adapters: what all tenants have."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.adapter_query import Wanted
from loragate.gateway.auth.requirements import Administrator
from loragate.gateway.http.envelope import json_response
from loragate.gateway.openapi.answers import answers
from loragate.gateway.openapi.shapes.admin import AdminAdapterList
from loragate.gateway.services import Use
from loragate.gateway.wire.adapters import admin_adapter_object
from loragate.gateway.wire.lists import list_object

router = APIRouter(prefix="/admin/v1/adapters", tags=["admin"])


@router.get("")
@answers(AdminAdapterList)
async def list_all_adapters(
    caller: Administrator,
    wanted: Wanted,
    use: Use,
    tenant: Annotated[str | None, Query(max_length=64, description="A tenant's id.")] = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """Newest first."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.published.list(wanted, tenant_id=tenant, after=after, limit=limit)
    return json_response(list_object([admin_adapter_object(adapter) for adapter in page], has_more=page.has_more))
