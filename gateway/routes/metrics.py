"""GET /metrics."""

from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import Metric

from loragate.gateway.dependencies.requirements import OperatorOrAnybody
from loragate.gateway.dependencies.services import Use
from loragate.gateway.engine.adapter_names import Names, names_of
from loragate.gateway.instruments.tenant_counter import TENANT_PREFIX
from loragate.gateway.metering.request_metrics import ALIAS_TARGET_PREFIX
from loragate.gateway.observability.adapter_families import (
    adapter_families,
    lora_requests_info,
    lora_residency,
    tenant_families,
    vllm_load,
)
from loragate.gateway.observability.engine_families import engine_families
from loragate.gateway.observability.exposition import CONTENT_TYPE, exposition
from loragate.gateway.observability.finetune_families import finetune_families
from loragate.gateway.openapi.responses import describes
from loragate.gateway.services import Services
from loragate.v1 import engine_pb2 as pb

router = APIRouter(tags=["health"])


@router.get("/metrics")
@describes(None, json=False, media={CONTENT_TYPE: "Prometheus' text format."})
async def metrics(operator: OperatorOrAnybody, use: Use) -> Response:
    """Return metrics for Prometheus. With the admin key they include metrics by adapter and by tenant, with the
    adapters' names."""
    stats = await (use.engine_stats.shared() if operator is None else use.engine_stats.detailed())
    families = [*_own_families(use, all_of_them=operator is not None), *engine_families(stats)]
    families += finetune_families(use.config.data_dir)
    if stats is not None:
        names = {} if operator is None else await _names(use, stats)
        manifest = None if operator is None else use.link.manifest
        served_base = "" if manifest is None else manifest.model_id
        families += [lora_requests_info(stats, names), *lora_residency(stats, names, served_base), *vllm_load(stats)]
        if operator is not None:
            families += [*adapter_families(stats, names), *tenant_families(stats)]
    return Response(exposition(families), media_type=CONTENT_TYPE)


def _own_families(use: Services, *, all_of_them: bool) -> Iterator[Metric]:
    """Yield this gateway's metrics; those by tenant are for the operator only."""
    for family in use.http_metrics.families():
        if all_of_them or not family.name.startswith((TENANT_PREFIX, ALIAS_TARGET_PREFIX)):
            yield family


async def _names(use: Services, stats: pb.StatsResponse) -> Names:
    parts = (stats.demand, stats.residents, stats.cached, stats.adapters)
    return await names_of(use.store, [each.adapter for part in parts for each in part])
