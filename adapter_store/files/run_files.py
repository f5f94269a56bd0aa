"""Which rows of `files` are a job's run: see `run_snapshots`."""

from sqlalchemy import ColumnElement, and_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.tables.files import RUN, FileRow
from loragate.adapter_store.timestamps import utc_now


def of_run(job_id: str) -> ColumnElement[bool]:
    """What is kept of it."""
    named = FileRow.filename.startswith(f"{job_id}/", autoescape=True)
    return and_(FileRow.purpose == RUN, named, FileRow.deleted_at.is_(None))


async def discard_run(session: AsyncSession, job_id: str) -> None:
    """Its bytes go with a later sweep."""
    await session.execute(update(FileRow).where(of_run(job_id)).values(deleted_at=utc_now()))
