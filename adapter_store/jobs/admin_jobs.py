"""Fine-tuning jobs of all tenants, for the operator."""

from datetime import datetime

from sqlalchemy import and_, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.keyset import newest_of_all
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.jobs.job import JobStatus, OwnedJob
from loragate.adapter_store.jobs.repository import job_not_found
from loragate.adapter_store.jobs.rows import job_of
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.tables.jobs import JobEventRow, JobRow


class AdminJobs:
    """Part of an AdminScope; within a tenant, it sees that tenant's jobs only."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        status: JobStatus | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[OwnedJob]:
        """Return jobs, newest first; `after` is the id of the last one seen."""
        page = await newest_of_all(self._session, JobRow, tenant_id=tenant_id, status=status, after=after, limit=limit)
        return Page(tuple(OwnedJob(row.tenant_id, job_of(row)) for row in page), page.has_more)

    async def purge_events(self, before: datetime, limit: int) -> int:
        """Remove up to `limit` events of jobs that ended before `before`; return their number."""
        row = JobEventRow
        key = (row.tenant_id, row.job_id, row.number)
        ended = and_(JobRow.tenant_id == row.tenant_id, JobRow.id == row.job_id, JobRow.finished_at < before)
        old = select(*key).join(JobRow, ended).limit(limit)
        removed = await self._session.execute(delete(row).where(tuple_(*key).in_(old)).returning(row.number))
        return len(removed.all())

    async def get(self, job_id: str) -> OwnedJob:
        """Return a job. Raise NotFound."""
        row = None
        if could_be_id(job_id):
            row = await self._session.scalar(select(JobRow).where(JobRow.id == job_id))
        if row is None:
            raise job_not_found()
        return OwnedJob(row.tenant_id, job_of(row))
