"""Batches of all tenants, for the operator."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.batches.batch import Batch, BatchStatus
from loragate.adapter_store.batches.repository import batch_not_found
from loragate.adapter_store.batches.rows import batch_of
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.keyset import newest_of_all
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.tables.batches import BatchRow


@dataclass(frozen=True)
class OwnedBatch:
    """A batch as the operator sees it. A gateway works on it if it is `held`; else it waits for one, or has ended."""

    tenant_id: str
    batch: Batch
    held: bool


class AdminBatches:
    """Part of an AdminScope; within a tenant, it sees that tenant's batches only."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        status: BatchStatus | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[OwnedBatch]:
        """Return batches, newest first; `after` is the id of the last one seen."""
        page = await newest_of_all(
            self._session, BatchRow, tenant_id=tenant_id, status=status, after=after, limit=limit
        )
        return Page(await self._owned(*page), page.has_more)

    async def get(self, batch_id: str) -> OwnedBatch:
        """Return a batch. Raise NotFound."""
        row = None
        if could_be_id(batch_id):
            row = await self._session.scalar(select(BatchRow).where(BatchRow.id == batch_id))
        if row is None:
            raise batch_not_found()
        (owned,) = await self._owned(row)
        return owned

    async def _owned(self, *rows: BatchRow) -> tuple[OwnedBatch, ...]:
        now = await current_time(self._session)
        return tuple(
            OwnedBatch(row.tenant_id, batch_of(row), held=row.held_until is not None and row.held_until > now)
            for row in rows
        )
