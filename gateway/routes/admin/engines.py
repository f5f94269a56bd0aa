"""/admin/v1/engines: the engines that this gateway uses."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.member import Member
from loragate.gateway.dependencies.requirements import Operator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.engine.adapter_names import names_of, tenant_names_of
from loragate.gateway.errors import NotFound, Unavailable
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.engines import Engine, EngineAdapterList, EngineList, adapter_row_object, engine_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.services import Services
from loragate.v1 import engine_pb2 as pb

router = APIRouter(prefix="/admin/v1/engines", tags=["admin"])

_MAX_STEPS = 100_000

EngineId = Annotated[str, Path()]


@router.get("")
@describes(EngineList)
async def list_engines(operator: Operator, use: Use) -> Response:
    """List engines with what they serve and are doing, including those that are down."""
    return json_response(list_object(await asyncio.gather(*(_engine(use, each) for each in use.link.fleet.members))))


@router.get("/{engine_id}")
@describes(Engine)
async def get_engine(engine_id: EngineId, operator: Operator, use: Use) -> Response:
    """Get an engine."""
    return json_response(await _engine(use, _find(use, engine_id)))


@router.get("/{engine_id}/adapters")
@describes(EngineAdapterList)
async def list_engine_adapters(
    engine_id: EngineId,
    operator: Operator,
    use: Use,
    after: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the most recently used adapters with what each has served, by opaque id."""
    stats = await _stats(_find(use, engine_id), pb.StatsRequest(adapter_rows=limit, adapters_after=after))
    names = await names_of(use.store, [row.adapter for row in stats.adapters])
    holdings = await use.residency.holdings()
    rows = [adapter_row_object(row, names, holdings) for row in stats.adapters]
    return json_response(list_object(rows, has_more=stats.more_adapters))


@router.get("/{engine_id}/trace")
@describes(None)
async def trace_engine(
    engine_id: EngineId, operator: Operator, use: Use, steps: Annotated[int, Query(ge=0, le=_MAX_STEPS)] = 0
) -> Response:
    """Get a trace of the last `steps` steps, or of all that are recorded, to open in Perfetto."""
    member = _find(use, engine_id)
    try:
        document = await member.client.trace(steps)
    except EngineUnavailable as error:
        raise _down() from error
    disposition = f'attachment; filename="loragate-{engine_id}-trace.json"'
    return Response(document, media_type="application/json", headers={"content-disposition": disposition})


async def _engine(use: Services, member: Member) -> Engine:
    stats = await use.engine_stats.detailed_of(member)
    names = await names_of(use.store, [each.adapter for each in stats.residents] if stats else [])
    tenants = await tenant_names_of(use.store, [each.tenant_id for each in stats.tenants] if stats else [])
    return engine_object(member, use.link.manifest, stats, names, tenants)


async def _stats(member: Member, request: pb.StatsRequest) -> pb.StatsResponse:
    try:
        return await member.client.stats(request)
    except EngineUnavailable as error:
        raise _down() from error


def _find(use: Services, engine_id: str) -> Member:
    for member in use.link.fleet.members:
        if member.id == engine_id:
            return member
    raise NotFound("The engine does not exist.", param="engine_id")


def _down() -> Unavailable:
    return Unavailable("The engine does not respond.", code="engine_unavailable")
