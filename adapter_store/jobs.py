"""Fine-tuning jobs of one tenant, as the tenant sees them and orders them about."""

import orjson
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.base62 import random_base62
from loragate.adapter_store.cursor import newest_first
from loragate.adapter_store.database_time import database_now
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.job import Job, JobCheckpoint, JobEvent, JobRequest, JobStatus, Order
from loragate.adapter_store.job_rows import checkpoint_of, event_of, job_of
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.page import DEFAULT_LIMIT, Page, checked_limit, cut_page
from loragate.adapter_store.tables import JobCheckpointRow, JobEventRow, JobRow

_MOST_UNFINISHED = 32  # of one tenant
_ID_LENGTH = 24
_ENDS = tuple(status for status in JobStatus if status.ended)


class JobRepository:
    """Part of a TenantScope; every method sees that tenant's jobs only."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def create(self, request: JobRequest) -> Job:
        """Its files are to be validated. Raises Conflict when too many of the tenant's are unfinished."""
        unfinished = select(func.count(JobRow.id)).where(JobRow.status.not_in(_ENDS))
        if (await self._session.scalar(unfinished) or 0) >= _MOST_UNFINISHED:
            raise Conflict(
                f"{_MOST_UNFINISHED} jobs of yours are not finished; wait for one, or cancel one.", code="too_many_jobs"
            )
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
        }
        states = {"status": JobStatus.VALIDATING, "step": 0, "last_event": 0, "attempts": 0}
        await self._session.execute(insert(JobRow).values(id=job_id, created_at=database_now(), **values, **states))
        facts = {"method": request.method, "model": request.model, "training_file": request.training_file}
        await self._audit.record("fine_tuning_job.create", f"fine_tuning_job:{job_id}", after=facts)
        return await self.get(job_id)

    async def get(self, job_id: str) -> Job:
        return job_of(await self._row(job_id))

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Job]:
        """Newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, JobRow, after=after, limit=limit)
        return Page(tuple(map(job_of, page)), page.has_more)

    async def cancel(self, job_id: str) -> Job:
        """At once, or as soon as its worker hears of it. Raises Conflict when the job has ended."""
        return await self._order(job_id, Order.CANCEL)

    async def pause(self, job_id: str) -> Job:
        """The same; a worker that has begun writes a checkpoint first. Raises Conflict."""
        return await self._order(job_id, Order.PAUSE)

    async def resume(self, job_id: str) -> Job:
        """A paused job waits for its turn again, and goes on where it was. Raises Conflict."""
        row = await self._row(job_id)
        if row.status != JobStatus.PAUSED:
            raise Conflict(f"The job is {row.status}; only paused jobs can be resumed.", code="job_not_paused")
        status = JobStatus.VALIDATING if row.recipe is None else JobStatus.QUEUED
        await self._change(job_id, status=status, wanted=None)
        await self._audited("resume", row)
        return await self.get(job_id)

    async def events(self, job_id: str, *, after: int | None = None, limit: int = DEFAULT_LIMIT) -> Page[JobEvent]:
        """Newest first; `after` is the number of the last one seen."""
        await self._row(job_id)
        query = select(JobEventRow).where(JobEventRow.job_id == job_id).order_by(JobEventRow.number.desc())
        if after is not None:
            query = query.where(JobEventRow.number < after)
        rows = (await self._session.scalars(query.limit(checked_limit(limit) + 1))).all()
        return cut_page([event_of(row) for row in rows], limit)

    async def checkpoints(
        self, job_id: str, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> Page[JobCheckpoint]:
        """Newest first; `after` is the id of the last one seen."""
        await self._row(job_id)
        row = JobCheckpointRow
        query = select(row).where(row.job_id == job_id).order_by(row.step.desc())
        if after is not None:
            seen = await self._session.scalar(select(row.step).where(row.job_id == job_id, row.id == after))
            if seen is None:
                raise Invalid("`after` is not the id of an item of this list.", param="after")
            query = query.where(row.step < seen)
        rows = (await self._session.scalars(query.limit(checked_limit(limit) + 1))).all()
        return cut_page([checkpoint_of(each) for each in rows], limit)

    async def _order(self, job_id: str, order: Order) -> Job:
        row = await self._row(job_id)
        end = JobStatus.CANCELLED if order is Order.CANCEL else JobStatus.PAUSED
        if row.status == end:
            return job_of(row)
        if JobStatus(row.status).ended:
            raise Conflict(f"The job is {row.status} and cannot be changed any more.", code="job_ended")
        now = (await self._session.execute(select(database_now()))).scalar_one()
        if row.held_until is not None and row.held_until > now:
            if row.wanted != Order.CANCEL:
                await self._change(job_id, wanted=order)
        else:
            ended = {"finished_at": database_now()} if end.ended else {}
            await self._change(job_id, status=end, wanted=None, worker=None, held_until=None, **ended)
        await self._audited(order, row)
        return await self.get(job_id)

    async def _row(self, job_id: str) -> JobRow:
        row = None
        if could_be_id(job_id):
            query = select(JobRow).where(JobRow.id == job_id).execution_options(populate_existing=True)
            row = await self._session.scalar(query)
        if row is None:
            raise NotFound("The fine-tuning job does not exist.", code="job_not_found", param="fine_tuning_job_id")
        return row

    async def _change(self, job_id: str, **values: object) -> None:
        await self._session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))

    async def _audited(self, act: str, was: JobRow) -> None:
        await self._audit.record(f"fine_tuning_job.{act}", f"fine_tuning_job:{was.id}", before={"status": was.status})
