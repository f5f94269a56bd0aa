"""Fine-tuning jobs of one tenant, as the tenant sees and controls them."""

from collections.abc import Mapping, Sequence

import orjson
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT, Page
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.files.run_files import discard_run
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.jobs.history import checkpoints_before, events_before, events_since
from loragate.adapter_store.jobs.job import (
    ORDERED,
    Job,
    JobCheckpoint,
    JobEvent,
    JobRequest,
    JobStatus,
    Order,
    TunedModel,
)
from loragate.adapter_store.jobs.labels import labelled
from loragate.adapter_store.jobs.rows import job_of, start_columns
from loragate.adapter_store.jobs.tuned_models import has_made, tuned_models
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.quotas import check_one_more_adapter, limits_of
from loragate.adapter_store.tables.jobs import JobRow
from loragate.adapter_store.usage.training import LIMIT_EXCEEDED, training_totals

_ID_LENGTH = 24
_ENDS = tuple(status for status in JobStatus if status.ended)
_ANY: Mapping[str, str] = {}


class JobRepository:
    """Part of a TenantScope; every method sees that tenant's jobs only."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def create(self, request: JobRequest) -> Job:
        """Create a job, whose files will be validated. Raise Conflict if the tenant has too many unfinished jobs, or
        no quota for the result."""
        await self._check_room()
        job_id = f"ftjob-{random_base62(_ID_LENGTH)}"
        values = {
            "method": request.method,
            "model": request.model,
            "training_file": request.training_file,
            "validation_file": request.validation_file,
            "hyperparameters": orjson.dumps(request.hyperparameters).decode(),
            "suffix": request.suffix,
            "seed": request.seed,
            "labels": orjson.dumps(request.metadata).decode(),
            **start_columns(request.start),
        }
        states = {"status": JobStatus.VALIDATING, "step": 0, "last_event": 0, "attempts": 0}
        await self._session.execute(insert(JobRow).values(id=job_id, created_at=database_now(), **values, **states))
        facts = {"method": request.method, "model": request.model, "training_file": request.training_file}
        await self._audit.record("fine_tuning_job.create", f"fine_tuning_job:{job_id}", after=facts)
        return await self.get(job_id)

    async def get(self, job_id: str) -> Job:
        return job_of(await self._row(job_id))

    async def list(
        self,
        labels: Mapping[str, str] | None = _ANY,
        *,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[Job]:
        """Return jobs with these `labels` (None: without any), newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, JobRow, *labelled(labels), after=after, limit=limit)
        return Page(tuple(map(job_of, page)), page.has_more)

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once, or when its worker next renews its lease. Raise Conflict if the job has ended."""
        return await self._order(job_id, Order.CANCEL)

    async def pause(self, job_id: str) -> Job:
        """Pause a job in the same way; a worker that has started writes a checkpoint first. Raise Conflict."""
        return await self._order(job_id, Order.PAUSE)

    async def resume(self, job_id: str) -> Job:
        """Queue a paused job, which continues from its checkpoint. Raise Conflict."""
        row = await self._row(job_id)
        if row.status != JobStatus.PAUSED:
            raise Conflict(f"The job is {row.status}; only paused jobs can be resumed.", code="job_not_paused")
        status = JobStatus.VALIDATING if row.recipe is None else JobStatus.QUEUED
        await self._change(job_id, status=status, wanted=None)
        await self._audited("resume", row)
        return await self.get(job_id)

    async def events(self, job_id: str, *, after: int | None = None, limit: int = DEFAULT_LIMIT) -> Page[JobEvent]:
        """Return events, newest first; `after` is the number of the last one seen."""
        await self._row(job_id)
        return await events_before(self._session, job_id, after, limit)

    async def events_since(self, job_id: str, number: int, *, limit: int = MAX_LIMIT) -> Page[JobEvent]:
        """Return events, oldest first, to follow a job; `number` is the last one seen, 0 before the first."""
        await self._row(job_id)
        return await events_since(self._session, job_id, number, limit)

    async def checkpoints(
        self, job_id: str, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[JobCheckpoint]:
        """Return checkpoints, newest first; `after` is the id of the last one seen."""
        await self._row(job_id)
        return await checkpoints_before(self._session, job_id, after, limit)

    async def has_made(self, model: str) -> bool:
        """Return whether a result, or a published checkpoint, of this tenant's jobs has exactly this name."""
        return await has_made(self._session, model)

    async def models(self) -> Sequence[TunedModel]:
        """Return the results of the tenant's jobs, newest first, including deleted ones."""
        return await tuned_models(self._session)

    async def _order(self, job_id: str, order: Order) -> Job:
        row = await self._row(job_id)
        end = ORDERED[order]
        if row.status == end:
            return job_of(row)
        if JobStatus(row.status).ended:
            raise Conflict(f"The job is {row.status} and can no longer be changed.", code="job_ended")
        now = await current_time(self._session)
        if row.held_until is not None and row.held_until > now:
            if row.wanted != Order.CANCEL:
                await self._change(job_id, wanted=order)
        else:
            ended = {"finished_at": database_now()} if end.ended else {}
            if end.ended:
                await discard_run(self._session, job_id)
            await self._change(job_id, status=end, wanted=None, worker=None, held_until=None, **ended)
        await self._audited(order, row)
        return await self.get(job_id)

    async def _row(self, job_id: str) -> JobRow:
        row = None
        if could_be_id(job_id):
            query = select(JobRow).where(JobRow.id == job_id).execution_options(populate_existing=True)
            row = await self._session.scalar(query)
        if row is None:
            raise job_not_found()
        return row

    async def _check_room(self) -> None:
        limits = await limits_of(self._session)
        max_jobs = limits.max_unfinished_jobs
        unfinished = select(func.count(JobRow.id)).where(JobRow.status.not_in(_ENDS))
        if max_jobs is not None and (await self._session.scalar(unfinished) or 0) >= max_jobs:
            raise Conflict(
                f"This tenant may have {max_jobs} unfinished jobs (max_unfinished_jobs); wait until one ends, or "
                "cancel one.",
                code="too_many_jobs",
            )
        await check_one_more_adapter(self._session, limits)
        now = await current_time(self._session)
        exceeded = (await training_totals(self._session, now)).exceeded(limits)
        if exceeded is not None:
            raise Conflict(f"{exceeded} Wait until the period ends, or ask for more.", code=LIMIT_EXCEEDED)

    async def _change(self, job_id: str, **values: object) -> None:
        await self._session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))

    async def _audited(self, act: str, was: JobRow) -> None:
        await self._audit.record(f"fine_tuning_job.{act}", f"fine_tuning_job:{was.id}", before={"status": was.status})


def job_not_found() -> NotFound:
    """Return the same error for a missing job and for another tenant's."""
    return NotFound("The fine-tuning job does not exist.", code="job_not_found", param="fine_tuning_job_id")
