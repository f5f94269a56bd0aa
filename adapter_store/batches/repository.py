"""Batches of one tenant, as the tenant sees and controls them."""

import orjson
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.batches.batch import UNFINISHED, Batch, BatchRequest, BatchStatus
from loragate.adapter_store.batches.rows import batch_of
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.quotas import limits_of
from loragate.adapter_store.tables.batches import BatchRow

_ID_LENGTH = 24
_COUNTS = ("total", "completed", "failed", "prompt_tokens", "completion_tokens", "cached_tokens")


class BatchRepository:
    """Part of a TenantScope; every method sees that tenant's batches only."""

    def __init__(self, session: AsyncSession, audit: AuditLog) -> None:
        self._session = session
        self._audit = audit

    async def create(self, request: BatchRequest) -> Batch:
        """Create a batch, whose file will be validated. Raise Conflict if the tenant has too many unfinished ones."""
        await self._check_room()
        batch_id, now = f"batch_{random_base62(_ID_LENGTH)}", await current_time(self._session)
        values = {
            "key_id": request.key_id,
            "endpoint": request.endpoint,
            "input_file": request.input_file,
            "completion_window": request.completion_window,
            "output_seconds": request.output_seconds,
            "labels": orjson.dumps(request.metadata).decode(),
            "status": BatchStatus.VALIDATING,
            "created_at": now,
            "expires_at": now + request.window,
            **dict.fromkeys(_COUNTS, 0),
        }
        await self._session.execute(insert(BatchRow).values(id=batch_id, **values))
        facts = {"endpoint": request.endpoint, "input_file": request.input_file}
        await self._audit.record("batch.create", f"batch:{batch_id}", after=facts)
        return await self.get(batch_id)

    async def get(self, batch_id: str) -> Batch:
        return batch_of(await self._row(batch_id))

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Batch]:
        """Return batches, newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, BatchRow, after=after, limit=limit)
        return Page(tuple(map(batch_of, page)), page.has_more)

    async def cancel(self, batch_id: str) -> Batch:
        """Cancel a batch: it ends when its worker has stopped and its results are in files. Raise Conflict if it has
        ended, or all its lines have been run."""
        batch = await self.get(batch_id)
        if batch.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
            return batch
        if batch.status.ended or batch.status is BatchStatus.FINALIZING:
            raise Conflict(f"The batch is {batch.status} and can no longer be cancelled.", code="batch_ended")
        now = await current_time(self._session)
        cancelled = {"status": BatchStatus.CANCELLING, "cancelling_at": now, "waits_for": None, "waits_until": None}
        await self._session.execute(update(BatchRow).where(BatchRow.id == batch_id).values(**cancelled))
        await self._audit.record("batch.cancel", f"batch:{batch_id}", before={"status": batch.status})
        return await self.get(batch_id)

    async def _row(self, batch_id: str) -> BatchRow:
        row = None
        if could_be_id(batch_id):
            query = select(BatchRow).where(BatchRow.id == batch_id).execution_options(populate_existing=True)
            row = await self._session.scalar(query)
        if row is None:
            raise batch_not_found()
        return row

    async def _check_room(self) -> None:
        most = (await limits_of(self._session)).max_unfinished_batches
        unfinished = select(func.count(BatchRow.id)).where(BatchRow.status.in_(UNFINISHED))
        if most is not None and (await self._session.scalar(unfinished) or 0) >= most:
            raise Conflict(
                f"This tenant may have {most} unfinished batches (max_unfinished_batches); wait until one ends, or "
                "cancel one.",
                code="too_many_batches",
            )


def batch_not_found() -> NotFound:
    return NotFound("The batch does not exist.", code="batch_not_found", param="batch_id")
