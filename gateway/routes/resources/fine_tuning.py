"""/v1/fine_tuning/jobs, as in OpenAI's API."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, FineTuner
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.fine_tuning import FineTuningJob, JobList
from loragate.gateway.objects.job_events import CheckpointList, EventList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import jobs as actions
from loragate.gateway.operations.job_creation import create_job
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.gateway.schemas.resources.job_query import METADATA_PARAMETER, Wanted

router = APIRouter(prefix="/v1/fine_tuning/jobs", tags=["fine-tuning"])

After = Annotated[str | None, Query(max_length=64)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
CHECKPOINTS = 10  # as with OpenAI


@router.post("")
@describes(FineTuningJob, errors=(404,))
async def create_fine_tuning_job(
    caller: FineTuner,
    by: By,
    body: Annotated[JobCreate, Depends(JsonBody(JobCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create a job that trains an adapter on a file of examples. `model` is the base model, or any name of one of the
    caller's adapters: then training starts from the version that the name refers to now."""
    return (await create_job(use, caller, by, body, once)).response()


@router.get("", openapi_extra={"parameters": [METADATA_PARAMETER]})
@describes(JobList)
async def list_fine_tuning_jobs(
    caller: FineTuner, wanted: Wanted, use: Use, after: After = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List jobs, newest first."""
    return json_response(await actions.list_jobs(use, caller, wanted, after, limit))


@router.get("/{fine_tuning_job_id}")
@describes(FineTuningJob)
async def get_fine_tuning_job(fine_tuning_job_id: str, caller: FineTuner, use: Use) -> Response:
    """Get a job."""
    return json_response(await actions.get(use, caller, fine_tuning_job_id))


@router.post("/{fine_tuning_job_id}/cancel")
@describes(FineTuningJob, errors=(409,))
async def cancel_fine_tuning_job(fine_tuning_job_id: str, caller: FineTuner, by: By, use: Use) -> Response:
    """Cancel a job for good. The status of a running job changes once its worker has been notified. Responds 409 once
    the job has ended."""
    return json_response(await actions.order(use, caller.tenant_id, by, fine_tuning_job_id, "cancel"))


@router.post("/{fine_tuning_job_id}/pause")
@describes(FineTuningJob, errors=(409,))
async def pause_fine_tuning_job(fine_tuning_job_id: str, caller: FineTuner, by: By, use: Use) -> Response:
    """Pause a job until it is resumed. A job in training writes a checkpoint first. Responds 409 once it has ended."""
    return json_response(await actions.order(use, caller.tenant_id, by, fine_tuning_job_id, "pause"))


@router.post("/{fine_tuning_job_id}/resume")
@describes(FineTuningJob, errors=(409,))
async def resume_fine_tuning_job(fine_tuning_job_id: str, caller: FineTuner, by: By, use: Use) -> Response:
    """Resume a paused job: it is queued again and continues where it stopped. Responds 409 if it is not paused."""
    return json_response(await actions.order(use, caller.tenant_id, by, fine_tuning_job_id, "resume"))


@router.get("/{fine_tuning_job_id}/events")
@describes(EventList)
async def list_fine_tuning_events(
    fine_tuning_job_id: str, caller: FineTuner, use: Use, after: After = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List a job's events, newest first: messages, and the metrics of each training step."""
    return json_response(await actions.list_events(use, caller.tenant_id, fine_tuning_job_id, after, limit))


@router.get("/{fine_tuning_job_id}/checkpoints")
@describes(CheckpointList)
async def list_fine_tuning_checkpoints(
    fine_tuning_job_id: str, caller: FineTuner, use: Use, after: After = None, limit: Limit = CHECKPOINTS
) -> Response:
    """List a job's checkpoints, newest first."""
    return json_response(await actions.list_checkpoints(use, caller.tenant_id, fine_tuning_job_id, after, limit))
