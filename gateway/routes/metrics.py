"""GET /metrics."""

from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import Metric

from loragate.adapter_store.timestamps import elapsed
from loragate.gateway.dependencies.requirements import OperatorOrAnybody
from loragate.gateway.dependencies.services import Use
from loragate.gateway.engine.adapter_names import Names, names_of
from loragate.gateway.engine.stats_reader import EngineStats
from loragate.gateway.instruments.tenant_counter import TENANT_PREFIX
from loragate.gateway.metering.request_metrics import ALIAS_TARGET_PREFIX
from loragate.gateway.observability.adapter_families import (
    adapter_families,
    lora_requests_info,
    lora_residency,
    summed,
    tenant_families,
    vllm_load,
)
from loragate.gateway.observability.engine_families import engine_families, responding
from loragate.gateway.observability.exposition import CONTENT_TYPE, exposition
from loragate.gateway.observability.finetune_families import finetune_families
from loragate.gateway.openapi.responses import describes
from loragate.gateway.resilience.ttl_cache import CachedRead
from loragate.gateway.services import Services
from loragate.v1 import engine_pb2 as pb

router = APIRouter(tags=["health"])


@router.get("/metrics")
@describes(None, json=False, media={CONTENT_TYPE: "Prometheus' text format."})
async def metrics(operator: OperatorOrAnybody, use: Use) -> Response:
    """Return metrics for Prometheus. With the admin key they are current and include metrics by adapter and by tenant,
    with the adapters' names; without it, they may be a second old."""
    page = await (use.public_metrics.get("", lambda: _public_page(use)) if operator is None else _whole_page(use))
    return Response(page, media_type=CONTENT_TYPE)


async def _public_page(use: Services) -> CachedRead[bytes]:
    """Return what everybody may see: no names, no ids, nothing of a single tenant."""
    read_at, engines = elapsed(), await use.engine_stats.shared()
    families = _common_families(use, engines, all_of_them=False)
    if running := responding(engines):
        stats = summed(list(running.values()))
        families += [lora_requests_info(stats, None), *lora_residency(stats, None, ""), *vllm_load(stats)]
    return CachedRead(exposition(families), None, read_at)


async def _whole_page(use: Services) -> bytes:
    engines = await use.engine_stats.detailed()
    families = _common_families(use, engines, all_of_them=True)
    if running := responding(engines):
        stats = summed(list(running.values()))
        names = await _names(use, running.values())
        served_base = "" if use.link.manifest is None else use.link.manifest.model_id
        families += [lora_requests_info(stats, names), *lora_residency(stats, names, served_base), *vllm_load(stats)]
        families += [*adapter_families(running, names), *tenant_families(running)]
    return exposition(families)


def _common_families(use: Services, engines: EngineStats, *, all_of_them: bool) -> list[Metric]:
    own = _own_families(use, all_of_them=all_of_them)
    return [*own, *engine_families(engines), *finetune_families(use.config.data_dir, all_of_them=all_of_them)]


def _own_families(use: Services, *, all_of_them: bool) -> Iterator[Metric]:
    """Yield this gateway's metrics; those by tenant are for the operator only."""
    for family in use.http_metrics.families():
        if all_of_them or not family.name.startswith((TENANT_PREFIX, ALIAS_TARGET_PREFIX)):
            yield family


async def _names(use: Services, running: Iterable[pb.StatsResponse]) -> Names:
    parts = [part for stats in running for part in (stats.demand, stats.residents, stats.cached, stats.adapters)]
    return await names_of(use.store, [each.adapter for part in parts for each in part])
