"""Pages of a job's events and checkpoints."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.page import Page, checked_limit, cut_page
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.jobs.job import JobCheckpoint, JobEvent
from loragate.adapter_store.jobs.rows import checkpoint_of, event_of
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.tables.jobs import JobCheckpointRow, JobEventRow


async def events_before(session: AsyncSession, job_id: str, number: int | None, limit: int) -> Page[JobEvent]:
    """Return the events before `number`, newest first."""
    query = select(JobEventRow).where(JobEventRow.job_id == job_id).order_by(JobEventRow.number.desc())
    if number is not None:
        query = query.where(JobEventRow.number < number)
    rows = (await session.scalars(query.limit(checked_limit(limit) + 1))).all()
    return cut_page([event_of(row) for row in rows], limit)


async def events_since(session: AsyncSession, job_id: str, number: int, limit: int) -> Page[JobEvent]:
    """Return the events after `number`, oldest first."""
    query = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.number > number)
    rows = (await session.scalars(query.order_by(JobEventRow.number).limit(checked_limit(limit) + 1))).all()
    return cut_page([event_of(row) for row in rows], limit)


async def checkpoints_before(session: AsyncSession, job_id: str, after: str | None, limit: int) -> Page[JobCheckpoint]:
    """Return checkpoints, newest first; `after` is the id of the last one seen. Raise Invalid."""
    row = JobCheckpointRow
    query = select(row).where(row.job_id == job_id).order_by(row.step.desc())
    if after is not None:
        named = select(row.step).where(row.job_id == job_id, row.id == after)
        seen = await session.scalar(named) if could_be_id(after) else None
        if seen is None:
            raise Invalid("`after` is not the id of an item of this list.", param="after")
        query = query.where(row.step < seen)
    rows = (await session.scalars(query.limit(checked_limit(limit) + 1))).all()
    return cut_page([checkpoint_of(each) for each in rows], limit)
