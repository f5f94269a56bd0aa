"""/v1/usage and /admin/v1/usage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.query import Grouping
from loragate.adapter_store.usage.repository import UsageRepository
from loragate.adapter_store.usage.service_quality import ServiceQuery
from loragate.gateway.dependencies.requirements import Operator, UsageReader
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.usage import Service, UsageList, service_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations.usage_report import Report
from loragate.gateway.schemas.resources.adapters import DEFAULT_HOURS, MAX_HOURS
from loragate.gateway.schemas.resources.usage import Id, UsageParams, usage_params
from loragate.gateway.services import Services

router = APIRouter()

_CSV = {"text/csv": "All rows, after a header line."}
_ALL = frozenset(Grouping)
_OF_A_TENANT = _ALL - {Grouping.TENANT}

Params = Annotated[UsageParams, Depends(usage_params)]


@router.get("/v1/usage", tags=["usage"])
@describes(UsageList, media=_CSV)
async def get_usage(caller: UsageReader, request: Request, use: Use, params: Params) -> Response:
    """Get the usage of the caller's tenant, newest first, grouped by day unless `group_by` says otherwise. The period
    is widened to whole hours or days, UTC."""
    query = params.query(default=(Grouping.DAY,), allowed=_OF_A_TENANT)

    @asynccontextmanager
    async def own() -> AsyncIterator[UsageRepository]:
        async with use.store.tenant(caller.tenant_id) as scope:
            yield scope.usage

    return await _respond(Report(query, own, _currency(use)), params, request)


@router.get("/v1/usage/service", tags=["usage"])
@describes(Service)
async def get_service_quality(
    caller: UsageReader, use: Use, hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = DEFAULT_HOURS
) -> Response:
    """Get how the requests of the caller's tenant were served during the last hours, including the current one: how
    many failed, how long their first tokens took, and how many were rejected. A request is included a few seconds after
    it has ended."""
    end = utc_now()
    query = ServiceQuery(end - timedelta(hours=hours - 1), end)
    async with use.store.tenant(caller.tenant_id) as scope:
        served = await scope.usage.service(query)
    return json_response(service_object(query, served))


@router.get("/admin/v1/usage", tags=["admin"])
@describes(UsageList, media=_CSV)
async def list_all_usage(
    operator: Operator, request: Request, use: Use, params: Params, tenant_id: Id = None
) -> Response:
    """Get the usage of all tenants or of one, grouped by day and tenant unless `group_by` says otherwise."""
    query = params.query(default=(Grouping.DAY, Grouping.TENANT), allowed=_ALL, tenant_id=tenant_id)
    return await _respond(Report(query, lambda: _usage_of_all_tenants(use.store), _currency(use)), params, request)


@asynccontextmanager
async def _usage_of_all_tenants(store: Store) -> AsyncIterator[UsageRepository]:
    async with store.admin() as admin:
        yield admin.usage


async def _respond(report: Report, params: UsageParams, request: Request) -> Response:
    vary = {"vary": "accept"}
    if not _wants_csv(params, request):
        return json_response(await report.page(params.after, params.limit), headers=vary)
    first = await report.rows(params.after)  # so that an error is still an error response
    disposition = {"content-disposition": 'attachment; filename="usage.csv"'}
    return StreamingResponse(report.table(first), headers=vary | disposition, media_type="text/csv")


def _wants_csv(params: UsageParams, request: Request) -> bool:
    if params.format is not None:
        return params.format == "csv"
    return request.headers.get("accept", "").partition(";")[0].partition(",")[0].strip().lower() == "text/csv"


def _currency(use: Services) -> str | None:
    return use.config.currency if use.config.prices else None
