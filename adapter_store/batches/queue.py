"""The queue of all tenants' batches, from which gateways claim the next one."""

from dataclasses import dataclass
from functools import cache

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.batches.batch import UNFINISHED, Batch
from loragate.adapter_store.batches.rows import batch_of
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.jobs.lease import LEASE
from loragate.adapter_store.tables.batches import BatchRow
from loragate.adapter_store.tables.tenants import TenantRow

_TRIES = 8


@dataclass(frozen=True)
class BatchClaim:
    """A claimed batch, held as `worker`."""

    tenant_id: str
    batch: Batch
    worker: str


class BatchQueue:
    """Part of a writing AdminScope. Gateways on several machines may claim batches at the same time."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def claim(self, worker: str) -> BatchClaim | None:
        """Claim the next batch; None if none waits. `worker` is new for each claim, so that it stands for one lease.

        The tenant whose batches fewest workers hold comes first, then the one served longest ago, then its oldest
        batch that was served longest ago. A batch whose worker stopped responding is free.
        """
        for _ in range(_TRIES):
            found = (await self._session.execute(_next())).one_or_none()
            if found is None:
                return None
            claim = await self._take(worker, *found)
            if claim is not None:
                return claim
        return None

    async def waits(self) -> bool:
        """Return whether a batch waits for a worker."""
        return (await self._session.execute(_next())).first() is not None

    async def others_wait(self, tenant_id: str) -> bool:
        """Return whether a batch of another tenant waits for a worker."""
        query = _next().where(BatchRow.tenant_id != tenant_id)
        return (await self._session.execute(query)).first() is not None

    async def _take(self, worker: str, tenant_id: str, batch_id: str) -> BatchClaim | None:
        """Take a batch; None if another worker was faster."""
        lock = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
        await self._session.execute(lock)
        here = (BatchRow.tenant_id == tenant_id, BatchRow.id == batch_id)
        now = await current_time(self._session)
        held = {"worker": worker, "held_until": now + LEASE, "served_at": now, "waits_for": None, "waits_until": None}
        taken = update(BatchRow).where(*here, _free()).values(**held).returning(BatchRow.id)
        if (await self._session.execute(taken)).one_or_none() is None:
            return None
        query = select(BatchRow).where(*here).execution_options(populate_existing=True)
        return BatchClaim(tenant_id, batch_of((await self._session.scalars(query)).one()), worker)


@cache  # each process asks once a second
def _next() -> Select[str, str]:
    other = aliased(BatchRow)
    of_tenant = other.tenant_id == BatchRow.tenant_id
    held = and_(of_tenant, other.held_until > database_now())
    at_work = select(func.count()).where(held).correlate(BatchRow).scalar_subquery()
    longest_ago = select(func.max(other.served_at)).where(of_tenant).correlate(BatchRow).scalar_subquery()
    alive = select(TenantRow.id).where(TenantRow.id == BatchRow.tenant_id, TenantRow.deleted_at.is_(None)).exists()
    order = (at_work, longest_ago.asc().nulls_first(), BatchRow.served_at.asc().nulls_first(), BatchRow.created_at)
    query = select(BatchRow.tenant_id, BatchRow.id).where(_free(), alive)
    return query.order_by(*order, BatchRow.id).limit(1)


def _free() -> ColumnElement[bool]:
    """Return the condition that a batch is to be worked on, and no worker holds it."""
    now = database_now()
    return and_(
        BatchRow.status.in_(UNFINISHED),
        or_(BatchRow.held_until.is_(None), BatchRow.held_until <= now),
        or_(BatchRow.waits_until.is_(None), BatchRow.waits_until <= now),
    )
