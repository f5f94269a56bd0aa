"""The rows of `files` that belong to a job's run; see `jobs.run_snapshots`."""

from sqlalchemy import ColumnElement, and_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.tables.files import RUN, FileRow
from loragate.adapter_store.timestamps import utc_now


def of_run(job_id: str) -> ColumnElement[bool]:
    """Return the condition that a file belongs to the job's run."""
    named = FileRow.filename.startswith(f"{job_id}/", autoescape=True)
    return and_(FileRow.purpose == RUN, named, FileRow.deleted_at.is_(None))


async def discard_run(session: AsyncSession, job_id: str) -> None:
    """Delete the files of a job's run; a later sweep removes their bytes."""
    await session.execute(update(FileRow).where(of_run(job_id)).values(deleted_at=utc_now()))
