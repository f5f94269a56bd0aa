"""/admin/v1/adapters: the adapters of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.adapters.desired_state import PlacementBounds
from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Administrator, By, Operator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.admin import AdminAdapter, AdminAdapterList, admin_adapter_object
from loragate.gateway.objects.common import list_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.resources.adapter_query import Wanted
from loragate.gateway.schemas.resources.adapters import AdapterPlacement
from loragate.gateway.services import Services

router = APIRouter(prefix="/admin/v1/adapters", tags=["admin"])


@router.get("")
@describes(AdminAdapterList)
async def list_all_adapters(
    caller: Administrator,
    wanted: Wanted,
    use: Use,
    tenant: Annotated[str | None, Query(max_length=64, description="A tenant's id.")] = None,
    after: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """List the adapters of all tenants, newest first."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.published.list(wanted, tenant_id=tenant, after=after, limit=limit)
    holdings = await use.residency.holdings()
    data = [admin_adapter_object(adapter, holdings) for adapter in page]
    return json_response(list_object(data, has_more=page.has_more))


@router.patch("/{adapter_id}")
@describes(AdminAdapter, errors=(409,))
async def place_adapter(
    adapter_id: str,
    operator: Operator,
    by: By,
    body: Annotated[AdapterPlacement, Depends(JsonBody(AdapterPlacement))],
    use: Use,
) -> Response:
    """Pin the versions that the adapter's aliases point to on every engine's device (`pinned`), or prefetch them to
    every engine's disk (`prefetched`); null removes the placement. Responds 409 if the engines have no space for it."""
    bounds = await _bounds(use)
    async with use.store.admin(write=True, by=by) as admin:
        adapter = await admin.desired.place(adapter_id, body.placement, bounds)
    return json_response(admin_adapter_object(adapter, await use.residency.holdings()))


async def _bounds(use: Services) -> PlacementBounds:
    """Return the bounds of placements, which the smallest engine sets: one slot stays free for adapters that are not
    pinned."""
    found = (await use.engine_stats.shared()).values()
    disks = [stats.adapter_disk.total_bytes for stats in found if stats is not None and stats.adapter_disk.total_bytes]
    return PlacementBounds(max(0, use.link.base.manifest.adapter_slots - 1), min(disks, default=None))
