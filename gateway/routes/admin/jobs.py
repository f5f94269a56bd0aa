"""/admin/v1/jobs: the fine-tuning jobs of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Principal
from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.adapter_store.jobs.job import JobStatus, OwnedJob
from loragate.gateway.dependencies.requirements import Administrator, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.fine_tuning import AdminJob, AdminJobList, admin_job_object
from loragate.gateway.objects.job_events import CheckpointList, EventList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import jobs as actions
from loragate.gateway.routes.resources.fine_tuning import CHECKPOINTS, After, Limit
from loragate.gateway.services import Services

router = APIRouter(prefix="/admin/v1/jobs", tags=["admin"])


@router.get("")
@describes(AdminJobList)
async def list_all_jobs(
    caller: Administrator,
    use: Use,
    tenant: Annotated[str | None, Query(max_length=64, description="A tenant's id.")] = None,
    status: Annotated[JobStatus | None, Query(description="Only jobs with this status.")] = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """List the jobs of all tenants, newest first."""
    async with use.store.admin(within=caller.tenant_id) as admin:
        page = await admin.jobs.list(tenant_id=tenant, status=status, after=after, limit=limit)
    return json_response(list_object([admin_job_object(job) for job in page], has_more=page.has_more))


@router.get("/{fine_tuning_job_id}")
@describes(AdminJob)
async def get_tenant_job(fine_tuning_job_id: str, caller: Administrator, use: Use) -> Response:
    """Get a job."""
    return json_response(admin_job_object(await _job(use, caller, fine_tuning_job_id)))


@router.get("/{fine_tuning_job_id}/events")
@describes(EventList)
async def list_tenant_job_events(
    fine_tuning_job_id: str, caller: Administrator, use: Use, after: After = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List a job's events as its tenant sees them, newest first. They contain no training examples."""
    tenant_id = (await _job(use, caller, fine_tuning_job_id)).tenant_id
    return json_response(await actions.list_events(use, tenant_id, fine_tuning_job_id, after, limit))


@router.get("/{fine_tuning_job_id}/checkpoints")
@describes(CheckpointList)
async def list_tenant_job_checkpoints(
    fine_tuning_job_id: str, caller: Administrator, use: Use, after: After = None, limit: Limit = CHECKPOINTS
) -> Response:
    """List a job's checkpoints as its tenant sees them, newest first."""
    tenant_id = (await _job(use, caller, fine_tuning_job_id)).tenant_id
    return json_response(await actions.list_checkpoints(use, tenant_id, fine_tuning_job_id, after, limit))


@router.post("/{fine_tuning_job_id}/cancel")
@describes(AdminJob, errors=(409,))
async def cancel_tenant_job(fine_tuning_job_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Cancel a job, as its tenant can. Responds 409 once it has ended."""
    return await _order(use, caller, by, fine_tuning_job_id, "cancel")


@router.post("/{fine_tuning_job_id}/pause")
@describes(AdminJob, errors=(409,))
async def pause_tenant_job(fine_tuning_job_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Pause a job, as its tenant can; the tenant may resume it. Responds 409 once it has ended."""
    return await _order(use, caller, by, fine_tuning_job_id, "pause")


@router.post("/{fine_tuning_job_id}/resume")
@describes(AdminJob, errors=(409,))
async def resume_tenant_job(fine_tuning_job_id: str, caller: Administrator, by: By, use: Use) -> Response:
    """Resume a paused job, as its tenant can. Responds 409 if it is not paused."""
    return await _order(use, caller, by, fine_tuning_job_id, "resume")


async def _order(use: Services, caller: Principal, by: Actor, job_id: str, act: actions.Act) -> Response:
    tenant_id = (await _job(use, caller, job_id)).tenant_id
    return json_response({**await actions.order(use, tenant_id, by, job_id, act), "tenant_id": tenant_id})


async def _job(use: Services, caller: Principal, job_id: str) -> OwnedJob:
    async with use.store.admin(within=caller.tenant_id) as admin:
        return await admin.jobs.get(job_id)
