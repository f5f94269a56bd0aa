"""Stored responses of all tenants, for the processes that run, expire and reseal them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.auth.installation import current_secret_id
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.jobs.lease import LEASE
from loragate.adapter_store.responses.response import UNFINISHED, StorageUse
from loragate.adapter_store.responses.rows import storage_use
from loragate.adapter_store.tables.responses import (
    ConversationItemRow,
    ConversationRow,
    ResponseEventsRow,
    StoredResponseRow,
)
from loragate.adapter_store.tables.tenants import TenantRow

_TRIES = 8


@dataclass(frozen=True)
class ResponseClaim:
    """A claimed response, held as `worker`."""

    tenant_id: str
    id: str
    key_id: str
    streamed: bool
    attempts: int
    worker: str


class ResponseQueue:
    """Part of a writing AdminScope. Gateways on several machines may claim responses at the same time."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def waits(self) -> bool:
        """Return whether a response waits for a worker."""
        return (await self._session.execute(_next())).first() is not None

    async def claim(self, worker: str) -> ResponseClaim | None:
        """Claim the next response; None if none waits. `worker` is new for each claim. The tenant of whose responses
        fewest are held comes first. A response whose worker stopped responding is free."""
        for _ in range(_TRIES):
            found = (await self._session.execute(_next())).one_or_none()
            if found is None:
                return None
            row = StoredResponseRow
            here = (row.tenant_id == found.tenant_id, row.id == found.id)
            now = await current_time(self._session)
            held = {"worker": worker, "held_until": now + LEASE, "attempts": row.attempts + 1}
            taken = update(row).where(*here, _free()).values(**held)
            claim = (await self._session.execute(taken.returning(row.key_id, row.streamed, row.attempts))).one_or_none()
            if claim is not None:
                return ResponseClaim(found.tenant_id, found.id, claim.key_id, claim.streamed, claim.attempts, worker)
        return None

    async def waiting(self) -> tuple[int, float]:
        """Return how many responses wait for a worker, and the age of the oldest one in seconds, or 0."""
        query = select(func.count(), func.min(StoredResponseRow.created_at)).where(_free())
        count, oldest = (await self._session.execute(query)).one()
        return count, 0.0 if oldest is None else (await current_time(self._session) - oldest).total_seconds()

    async def use(self) -> StorageUse:
        """Return what all tenants store."""
        return await storage_use(self._session)

    async def purge_responses(self, limit: int) -> int:
        """Remove up to `limit` responses that have expired and ended; return their number."""
        row, events = StoredResponseRow, ResponseEventsRow
        ended = (row.expires_at <= await current_time(self._session), row.status.not_in(UNFINISHED))
        old = await self._session.execute(select(row.tenant_id, row.id).where(*ended).limit(limit))
        count = 0
        for tenant_id, ids in _by_tenant(old.tuples()).items():
            of_these = (events.tenant_id == tenant_id, events.response_id.in_(ids))
            await self._session.execute(delete(events).where(*of_these))
            await self._session.execute(delete(row).where(row.tenant_id == tenant_id, row.id.in_(ids)))
            count += len(ids)
        return count

    async def purge_conversations(self, limit: int) -> int:
        """Remove up to `limit` conversations that have expired; return their number."""
        row, item = ConversationRow, ConversationItemRow
        expired = row.expires_at <= await current_time(self._session)
        old = await self._session.execute(select(row.tenant_id, row.id).where(expired).limit(limit))
        count = 0
        for tenant_id, ids in _by_tenant(old.tuples()).items():
            of_these = (item.tenant_id == tenant_id, item.conversation_id.in_(ids))
            await self._session.execute(delete(item).where(*of_these))
            await self._session.execute(delete(row).where(row.tenant_id == tenant_id, row.id.in_(ids)))
            count += len(ids)
        return count

    async def purge_deleted_tenants(self, limit: int) -> int:
        """Remove up to `limit` rows of each kind of tenants that were deleted; return the largest number."""
        gone = select(TenantRow.id).where(TenantRow.deleted_at.is_not(None))
        most = 0
        for row, key in _KINDS:
            some = select(*key).where(row.tenant_id.in_(gone)).limit(limit)
            removed = delete(row).where(tuple_(*key).in_(some)).returning(row.tenant_id)
            most = max(most, len((await self._session.execute(removed)).all()))
            if most == limit:
                break  # what refers to these comes next time
        return most

    async def tenants_to_reseal(self, primary: str) -> list[str]:
        """Return the tenants that have something under another secret than this process's primary one; none while
        another secret became the primary one later, elsewhere."""
        if await current_secret_id(self._session) != primary:
            return []
        found: set[str] = set()
        alive = select(TenantRow.id).where(TenantRow.deleted_at.is_(None))
        for row, _ in _KINDS:
            query = select(row.tenant_id).where(row.secret_id != primary, row.tenant_id.in_(alive)).distinct()
            found |= set(await self._session.scalars(query))
        return sorted(found)


_KINDS = (
    (ResponseEventsRow, (ResponseEventsRow.tenant_id, ResponseEventsRow.response_id, ResponseEventsRow.number)),
    (
        ConversationItemRow,
        (ConversationItemRow.tenant_id, ConversationItemRow.conversation_id, ConversationItemRow.position),
    ),
    (StoredResponseRow, (StoredResponseRow.tenant_id, StoredResponseRow.id)),
    (ConversationRow, (ConversationRow.tenant_id, ConversationRow.id)),
)


def _by_tenant(keys: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    """Return ids by their tenants. Postgres finds rows by a list of ids in an index, but not by a list of pairs."""
    found: dict[str, list[str]] = {}
    for tenant_id, row_id in keys:
        found.setdefault(tenant_id, []).append(row_id)
    return found


@cache  # each process asks once a second
def _next() -> Select[str, str]:
    row, other = StoredResponseRow, aliased(StoredResponseRow)
    held = and_(other.tenant_id == row.tenant_id, other.held_until > database_now())
    at_work = select(func.count()).where(held).correlate(row).scalar_subquery()
    alive = select(TenantRow.id).where(TenantRow.id == row.tenant_id, TenantRow.deleted_at.is_(None)).exists()
    query = select(row.tenant_id, row.id).where(_free(), alive)
    return query.order_by(at_work, row.created_at, row.id).limit(1)


def _free() -> ColumnElement[bool]:
    """Return the condition that a response is to be worked on, and no worker holds it."""
    row = StoredResponseRow
    return and_(row.status.in_(UNFINISHED), or_(row.held_until.is_(None), row.held_until <= database_now()))
