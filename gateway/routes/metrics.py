"""GET /metrics."""

from fastapi import APIRouter, Response

from loragate.gateway.auth.requirements import OperatorOrAnybody
from loragate.gateway.observability.adapter_families import adapter_families, lora_requests_info, tenant_families
from loragate.gateway.observability.adapter_names import Names, names_of
from loragate.gateway.observability.engine_families import engine_families
from loragate.gateway.observability.exposition import CONTENT_TYPE, exposition
from loragate.gateway.openapi.answers import answers
from loragate.gateway.services import Services, Use
from loragate.v1 import engine_pb2 as pb

router = APIRouter(tags=["health"])


@router.get("/metrics")
@answers(None, json=False, media={CONTENT_TYPE: "Prometheus' text format."})
async def metrics(operator: OperatorOrAnybody, use: Use) -> Response:
    """For Prometheus. With the admin key also what each adapter and tenant did, and adapters by name."""
    stats = await (use.engine_reading.shared() if operator is None else use.engine_reading.detailed())
    families = [*use.http_metrics.families(), *engine_families(stats)]
    if stats is not None:
        names = {} if operator is None else await _names(use, stats)
        families.append(lora_requests_info(stats, names))
        if operator is not None:
            families += [*adapter_families(stats, names), *tenant_families(stats)]
    return Response(exposition(families), media_type=CONTENT_TYPE)


async def _names(use: Services, stats: pb.StatsResponse) -> Names:
    return await names_of(use.store, [*(d.adapter for d in stats.demand), *(row.adapter for row in stats.adapters)])
