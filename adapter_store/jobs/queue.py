"""The queue of all tenants' jobs, from which workers claim the next one."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.jobs.job import Job, JobStatus, Order
from loragate.adapter_store.jobs.lease import LEASE
from loragate.adapter_store.jobs.rows import job_of
from loragate.adapter_store.tables.jobs import JobRow
from loragate.adapter_store.tables.tenants import TenantRow

MAX_ATTEMPTS = 3  # without progress: a job that kills its worker repeatedly is the cause itself
_TRIES = 8


@dataclass(frozen=True)
class JobClaim:
    """A claimed job. `died`: its last worker stopped responding; `hopeless`: that was one attempt too many; `order`:
    what its tenant ordered meanwhile."""

    tenant_id: str
    job: Job
    died: bool
    hopeless: bool
    order: Order | None = None


class JobQueue:
    """Part of an AdminScope. Workers on several machines may claim jobs at the same time."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def claim(self, worker: str, stage: JobStatus, max_per_tenant: int) -> JobClaim | None:
        """Claim the next job to validate (VALIDATING) or to train (QUEUED); None if there is none.

        The tenant with the fewest jobs in this stage comes first, then the one served longest ago, then its job that
        has waited longest. No tenant has more than `max_per_tenant` jobs in training. A job whose worker stopped
        responding is free.
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

    async def waits(self, stage: JobStatus, max_per_tenant: int) -> bool:
        """Return whether `claim` would find a job. This takes no lock."""
        return (await self._session.execute(_next(stage, max_per_tenant))).first() is not None

    async def _take(self, worker: str, stage: JobStatus, tenant_id: str, job_id: str) -> JobClaim | None:
        """Take a job; None if another worker was faster."""
        lock = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
        await self._session.execute(lock)
        here = (JobRow.tenant_id == tenant_id, JobRow.id == job_id)
        row = await self._session.scalar(
            select(JobRow).where(*here, _free(stage)).with_for_update().execution_options(populate_existing=True)
        )
        if row is None:
            return None
        died = row.held_until is not None
        now = await current_time(self._session)
        values = {"worker": worker, "held_until": now + LEASE, "attempts": row.attempts + died}
        if stage is JobStatus.QUEUED:
            values |= {"status": JobStatus.RUNNING, "started_at": row.started_at or now}
        await self._session.execute(update(JobRow).where(*here).values(**values))
        await self._session.refresh(row)
        order = None if row.wanted is None else Order(row.wanted)
        return JobClaim(tenant_id, job_of(row), died, hopeless=row.attempts >= MAX_ATTEMPTS, order=order)

    async def release_all(self, worker: str) -> None:
        """Release all jobs of a worker that no longer exists, as if their leases had expired."""
        held = (JobRow.worker == worker, JobRow.held_until > database_now())
        await self._session.execute(update(JobRow).where(*held).values(held_until=database_now()))

    async def others_wait(self, tenant_id: str, max_per_tenant: int) -> bool:
        """Return whether a job of another tenant is ready for training and waits for a worker."""
        query = _next(JobStatus.QUEUED, max_per_tenant).where(JobRow.tenant_id != tenant_id)
        return (await self._session.execute(query)).first() is not None

    async def waiting(self) -> dict[JobStatus, int]:
        """Return the number of jobs in each state that is not final."""
        query = select(JobRow.status, func.count()).where(JobRow.finished_at.is_(None)).group_by(JobRow.status)
        return {JobStatus(status): count for status, count in await self._session.execute(query)}


def _next(stage: JobStatus, max_per_tenant: int) -> Select[str, str]:
    """Select the next job: of the tenant with the fewest jobs at work, then of the one served longest ago.

    For validation, jobs that passed it and are not finished count as well, and a job that ended counts as served: a
    tenant whose files are all invalid takes turns with the others, too.
    """
    other = aliased(JobRow)
    of_tenant = other.tenant_id == JobRow.tenant_id
    validates = stage is JobStatus.VALIDATING
    begun = JobStatus.VALIDATING if validates else JobStatus.RUNNING
    busy = and_(other.status == begun, other.held_until > database_now())
    if validates:
        busy = or_(busy, other.status.in_((JobStatus.QUEUED, JobStatus.RUNNING)))
    at_work = select(func.count()).where(of_tenant, busy)
    served = func.coalesce(other.finished_at, other.started_at) if validates else other.started_at
    fewest = at_work.correlate(JobRow).scalar_subquery()
    longest_ago = select(func.max(served)).where(of_tenant).correlate(JobRow).scalar_subquery()
    query = select(JobRow.tenant_id, JobRow.id).where(_free(stage))
    if not validates:
        query = query.where(fewest < max_per_tenant)
    began = JobRow.started_at.asc().nulls_first()
    order = (fewest, longest_ago.asc().nulls_first(), began, JobRow.created_at, JobRow.id)
    return query.order_by(*order).limit(1)


def _free(stage: JobStatus) -> ColumnElement[bool]:
    """Return the condition that a job waits for this stage and no worker holds it."""
    silent = or_(JobRow.held_until.is_(None), JobRow.held_until <= database_now())
    if stage is JobStatus.VALIDATING:
        return and_(JobRow.status == JobStatus.VALIDATING, silent)
    return or_(
        JobRow.status == JobStatus.QUEUED, and_(JobRow.status == JobStatus.RUNNING, JobRow.held_until <= database_now())
    )
