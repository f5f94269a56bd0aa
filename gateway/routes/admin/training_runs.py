"""/admin/v1/training_runs: the runs of the training API of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Principal
from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.adapter_store.training.objects import RunStatus
from loragate.gateway.dependencies.requirements import Administrator, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.training import AdminTrainingRun, AdminTrainingRunList, admin_training_run
from loragate.gateway.openapi.responses import describes
from loragate.gateway.routes.resources.training_runs import After, Limit
from loragate.gateway.services import Services

router = APIRouter(prefix="/admin/v1/training_runs", tags=["admin"])


@router.get("")
@describes(AdminTrainingRunList)
async def list_all_training_runs(
    caller: Administrator,
    use: Use,
    status: Annotated[RunStatus | None, Query(description="Only runs with this status.")] = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """List the runs of all tenants, newest first."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.training_runs.list(status=status, after=after, limit=limit)
    return json_response(list_object([admin_training_run(each) for each in page], has_more=page.has_more))


@router.post("/{run_id}/pause")
@describes(AdminTrainingRun, errors=(409,))
async def pause_training_run(run_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Pause a run: its commands wait, and its client is given the reason. Responds 409 unless it is active."""
    return await _change(use, caller, by, run_id, RunStatus.PAUSED)


@router.post("/{run_id}/resume")
@describes(AdminTrainingRun, errors=(409,))
async def resume_training_run(run_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Resume a paused run. Responds 409 unless it is paused."""
    return await _change(use, caller, by, run_id, RunStatus.ACTIVE)


@router.post("/{run_id}/end")
@describes(AdminTrainingRun, errors=(409,))
async def end_training_run(run_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """End a run for good: its weights go, its checkpoints stay. Responds 409 if it has ended."""
    return await _change(use, caller, by, run_id, RunStatus.ENDED)


async def _change(use: Services, caller: Principal, by: Actor, run_id: str, status: RunStatus) -> Response:
    async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
        changed = await admin.training_runs.change(run_id, status)
    return json_response(admin_training_run(changed))
