"""Operations on a tenant's fine-tuning jobs, for REST and gRPC."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.database.page import Page
from loragate.adapter_store.jobs.job import JobStatus
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.fine_tuning import FineTuningJob, JobList, job_object
from loragate.gateway.objects.job_events import (
    CheckpointList,
    EventList,
    JobEvent,
    checkpoint_object,
    event_id,
    event_object,
)
from loragate.gateway.services import Services

Act = Literal["cancel", "pause", "resume"]


async def list_jobs(
    use: Services, caller: TenantPrincipal, labels: Mapping[str, str] | None, after: str | None, limit: int
) -> JobList:
    """Return a page of jobs, newest first: those with these labels or, if `labels` is None, those without labels."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.jobs.list(labels, after=after, limit=limit)
    return list_object([job_object(job, caller.tenant_id) for job in page], has_more=page.has_more)


async def get(use: Services, caller: TenantPrincipal, job_id: str) -> FineTuningJob:
    """Return a job."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return job_object(await scope.jobs.get(job_id), caller.tenant_id)


async def order(use: Services, tenant_id: str, by: Actor, job_id: str, act: Act) -> FineTuningJob:
    """Cancel, pause or resume a job, at once or when its worker is notified. Raise Conflict if it is too late."""
    async with use.store.tenant(tenant_id, write=True, by=by) as scope:
        match act:
            case "cancel":
                job = await scope.jobs.cancel(job_id)
            case "pause":
                job = await scope.jobs.pause(job_id)
            case "resume":
                job = await scope.jobs.resume(job_id)
    return job_object(job, tenant_id)


async def list_events(use: Services, tenant_id: str, job_id: str, after: str | None, limit: int) -> EventList:
    """Return a page of events, newest first."""
    number = None if after is None else event_number(job_id, after)
    async with use.store.tenant(tenant_id) as scope:
        page = await scope.jobs.events(job_id, after=number, limit=limit)
    return list_object([event_object(event, job_id) for event in page], has_more=page.has_more)


@dataclass(frozen=True)
class Since:
    """New events of a job, oldest first. `more` can be read at once; if the job has `ended`, no others will follow."""

    events: list[JobEvent]
    more: bool
    ended: bool


async def events_since(use: Services, caller: TenantPrincipal, job_id: str, after: str | None) -> Since:
    """Return the events that follow the event `after`, for a client that follows the job."""
    number = 0 if after is None else event_number(job_id, after)
    async with use.store.tenant(caller.tenant_id) as scope:
        job = await scope.jobs.get(job_id)
        page = await scope.jobs.events_since(job_id, number)
    return Since([event_object(event, job_id) for event in page], page.has_more, job.status.ended)


async def list_checkpoints(use: Services, tenant_id: str, job_id: str, after: str | None, limit: int) -> CheckpointList:
    """Return a page of the usable checkpoints, newest first. A job that has ended without a result has none."""
    async with use.store.tenant(tenant_id) as scope:
        job = await scope.jobs.get(job_id)
        page = await scope.jobs.checkpoints(job_id, after=after, limit=limit)
    if job.status.ended and job.status is not JobStatus.SUCCEEDED:
        page = Page((), has_more=False)
    return list_object([checkpoint_object(each, job) for each in page], has_more=page.has_more)


def event_number(job_id: str, after: str) -> int:
    """Return the number of the job's event with this id. Raise InvalidRequest."""
    number = after.rpartition("-")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 10) or event_id(job_id, int(number)) != after:
        words = "`after` is not the id of an item of this list."
        raise InvalidRequest(words, param="after", code="invalid_value")
    return int(number)
