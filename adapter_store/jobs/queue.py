"""Which job a worker gets next, of all tenants'."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.adapter_store.jobs.lease import LEASE
from loragate.adapter_store.jobs.rows import job_of
from loragate.adapter_store.tables.base import TenantRow
from loragate.adapter_store.tables.jobs import JobRow

MAX_ATTEMPTS = 3  # without getting on: what kills its worker again and again is the job itself
_TRIES = 8


@dataclass(frozen=True)
class JobClaim:
    """A job, held by whoever claimed it. `died`: its last worker fell silent; `hopeless`: it was one too many."""

    tenant_id: str
    job: Job
    died: bool
    hopeless: bool


class JobQueue:
    """Part of an AdminScope, whose transaction must be a writing one. Workers of several machines may ask at once."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def claim(self, worker: str, stage: JobStatus, max_per_tenant: int) -> JobClaim | None:
        """The next job whose files are to be validated (VALIDATING) or that is to be trained (QUEUED); None for none.

        The tenant with the fewest jobs in training comes first, then the one that has waited longest since one of its
        jobs began, then of its jobs the one that has; no tenant has more than `max_per_tenant` in training. A job whose
        worker is silent is anybody's.
        """
        assert stage in (JobStatus.VALIDATING, JobStatus.QUEUED)
        for _ in range(_TRIES):
            found = (await self._session.execute(_next(stage, max_per_tenant))).one_or_none()
            if found is None:
                return None
            claim = await self._take(worker, stage, *found)
            if claim is not None:
                return claim
        return None

    async def _take(self, worker: str, stage: JobStatus, tenant_id: str, job_id: str) -> JobClaim | None:
        """None when somebody else was faster."""
        lock = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
        await self._session.execute(lock)
        here = (JobRow.tenant_id == tenant_id, JobRow.id == job_id)
        row = await self._session.scalar(
            select(JobRow).where(*here, _free(stage)).with_for_update().execution_options(populate_existing=True)
        )
        if row is None:
            return None
        died = row.held_until is not None
        now = (await self._session.execute(select(database_now()))).scalar_one()
        values = {"worker": worker, "held_until": now + LEASE, "attempts": row.attempts + died}
        if stage is JobStatus.QUEUED:
            values |= {"status": JobStatus.RUNNING, "started_at": row.started_at or now}
        await self._session.execute(update(JobRow).where(*here).values(**values))
        await self._session.refresh(row)
        return JobClaim(tenant_id, job_of(row), died, hopeless=row.attempts >= MAX_ATTEMPTS)

    async def release_all(self, worker: str) -> None:
        """Whoever had this name is gone: what it held is anybody's at once, as if it had fallen silent."""
        held = (JobRow.worker == worker, JobRow.held_until > database_now())
        await self._session.execute(update(JobRow).where(*held).values(held_until=database_now()))

    async def waiting(self) -> dict[JobStatus, int]:
        """How many jobs there are in each state that is no end."""
        query = select(JobRow.status, func.count()).where(JobRow.finished_at.is_(None)).group_by(JobRow.status)
        return {JobStatus(status): count for status, count in await self._session.execute(query)}


def _next(stage: JobStatus, max_per_tenant: int) -> Select[str, str]:
    other = aliased(JobRow)
    of_tenant = other.tenant_id == JobRow.tenant_id
    running = and_(of_tenant, other.status == JobStatus.RUNNING, other.held_until > database_now())
    at_work = select(func.count()).where(running).correlate(JobRow).scalar_subquery()
    served = select(func.max(other.started_at)).where(of_tenant).correlate(JobRow).scalar_subquery()
    query = select(JobRow.tenant_id, JobRow.id).where(_free(stage))
    if stage is JobStatus.QUEUED:
        query = query.where(at_work < max_per_tenant)
    began = JobRow.started_at.asc().nulls_first()
    return query.order_by(at_work, served.asc().nulls_first(), began, JobRow.created_at, JobRow.id).limit(1)


def _free(stage: JobStatus) -> ColumnElement[bool]:
    """To be worked on, and nobody does."""
    silent = or_(JobRow.held_until.is_(None), JobRow.held_until <= database_now())
    if stage is JobStatus.VALIDATING:
        return and_(JobRow.status == JobStatus.VALIDATING, silent)
    return or_(
        JobRow.status == JobStatus.QUEUED, and_(JobRow.status == JobStatus.RUNNING, JobRow.held_until <= database_now())
    )
