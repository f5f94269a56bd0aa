"""The results of fine-tuning jobs, by name."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.jobs.job import TunedModel
from loragate.adapter_store.tables.jobs import JobCheckpointRow, JobRow

_MAX_LISTED = 10_000


async def has_made(session: AsyncSession, model: str) -> bool:
    """Return whether a result or a published checkpoint has this name."""
    made = select(JobRow.id).where(JobRow.fine_tuned_model == model)
    kept = select(JobCheckpointRow.job_id).where(JobCheckpointRow.model == model)
    for query in (made, kept):
        if await session.scalar(query.limit(1)) is not None:
            return True
    return False


async def tuned_models(session: AsyncSession) -> Sequence[TunedModel]:
    """Return the newest 10,000 results, newest first."""
    row = JobRow
    query = select(row.fine_tuned_model, row.finished_at).where(row.fine_tuned_model.is_not(None))
    found = await session.execute(query.order_by(row.created_at.desc(), row.id.desc()).limit(_MAX_LISTED))
    return [TunedModel(model, made_at) for model, made_at in found if model is not None and made_at is not None]
