"""Deferred publications: versions that wait for an engine to try them.

The publisher has received the status `verifying` and need do nothing more. A gateway with an engine tries the versions
that are due, one at a time. During a try, and for a while after a try without a verdict, a version is not due.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import orjson
from sqlalchemy import and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.adapters.versions import is_deferred, version_columns, version_of
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow, DeferredPublicationRow
from loragate.adapter_store.tables.tenants import TenantRow
from loragate.adapter_store.timestamps import utc_now

TRY = timedelta(seconds=90)
"""Longer than any try takes: a gateway that has not ended it by then has stopped."""

MAX_ATTEMPTS = 3
"""Tries that end without a verdict, though an engine answered."""


@dataclass(frozen=True)
class Due:
    """A version that may be tried now; `weight` is its tenant's."""

    tenant_id: str
    weight: float
    adapter_id: str
    version: int


@dataclass(frozen=True)
class Deferred:
    """A publication that waits. `tags` and `description`, if given, replace the adapter's when it is ready."""

    version: AdapterVersion
    staged: StagedAdapter
    alias: str
    tags: Sequence[str] | None
    description: str | None
    attempts: int = 0


async def defer(session: AsyncSession, deferred: Deferred, wait: timedelta = timedelta(0)) -> None:
    """Defer a publication; it is due after `wait`. Needs a tenant's session."""
    now = await current_time(session)
    labels = {"tags": None if deferred.tags is None else list(deferred.tags), "description": deferred.description}
    await session.execute(
        insert(DeferredPublicationRow).values(
            adapter_id=deferred.version.adapter_id,
            version=deferred.version.version,
            alias=deferred.alias,
            labels=orjson.dumps(labels).decode(),
            own_tokens=orjson.dumps(deferred.staged.own_tokens).decode(),
            attempts=0,
            due_at=now + wait,
            created_at=utc_now(),
        )
    )


async def next_due(session: AsyncSession) -> Due | None:
    """Return the due version that has waited longest. Needs the operator's session."""
    row = DeferredPublicationRow
    query = (
        select(row.tenant_id, TenantRow.weight, row.adapter_id, row.version)
        .join(TenantRow, and_(TenantRow.id == row.tenant_id, TenantRow.deleted_at.is_(None)))
        .where(row.due_at <= database_now())
        .order_by(row.due_at)
        .limit(1)
    )
    found = (await session.execute(query)).one_or_none()
    return None if found is None else Due(*found)


async def take(session: AsyncSession, adapter_id: str, version: int) -> Deferred | None:
    """Take a version for a try, during which it is not due; None if another gateway was faster, or it is gone."""
    if not await _wait(session, adapter_id, version, TRY, due=True):
        return None
    row, name, kept = AdapterVersionRow, AdapterRow.name, DeferredPublicationRow
    here = and_(kept.adapter_id == row.adapter_id, kept.version == row.version)
    query = (
        select(name, *version_columns(), kept.alias, kept.labels, kept.own_tokens, kept.attempts)
        .join(AdapterRow, AdapterRow.id == row.adapter_id)
        .join(kept, here)
        .where(row.adapter_id == adapter_id, row.version == version, row.deleted_at.is_(None))
        .where(row.status == VersionStatus.VERIFYING.value)
    )
    found = (await session.execute(query)).one_or_none()
    if found is None:
        await discard(session, adapter_id, version)
        return None
    taken = version_of(found.name, found)
    staged = StagedAdapter(
        digest=taken.digest,
        rank=taken.rank,
        size_bytes=taken.size_bytes,
        base_model=taken.base_model,
        base_digest=taken.base_digest,
        own_tokens=tuple(orjson.loads(found.own_tokens)),
        classifier=taken.classifier,
    )
    return Deferred(taken, staged, found.alias, **orjson.loads(found.labels), attempts=found.attempts)


async def reschedule(session: AsyncSession, deferred: Deferred, wait: timedelta, *, answered: bool) -> None:
    """Make a version due again after `wait`. `answered`: an engine answered, but without a verdict."""
    version = deferred.version
    await _wait(session, version.adapter_id, version.version, wait, attempts=deferred.attempts + answered)


async def discard(session: AsyncSession, adapter_id: str, version: int) -> None:
    """Remove a version from those that wait."""
    row = DeferredPublicationRow
    await session.execute(delete(row).where(row.adapter_id == adapter_id, row.version == version))


async def find_deferred(session: AsyncSession, name: str, version: int) -> AdapterVersion | None:
    """Return a version that waits for an engine, or was rejected, and so is visible to its publisher only."""
    row, adapter = AdapterVersionRow, AdapterRow
    waits = and_(row.status == VersionStatus.VERIFYING.value, row.deleted_at.is_(None), is_deferred())
    query = (
        select(adapter.name, *version_columns())
        .join(adapter, adapter.id == row.adapter_id)
        .where(adapter.name == name, row.version == version)
        .where(or_(waits, row.status == VersionStatus.REJECTED.value))
        .order_by(row.created_at.desc())
        .limit(1)
    )
    found = (await session.execute(query)).one_or_none()
    return None if found is None else version_of(found.name, found)


async def _wait(
    session: AsyncSession, adapter_id: str, version: int, wait: timedelta, *, due: bool = False, **values: object
) -> bool:
    row = DeferredPublicationRow
    now = await current_time(session)
    here = (row.adapter_id == adapter_id, row.version == version)
    changed = update(row).where(*here, *((row.due_at <= now,) if due else ()))
    rescheduled = changed.values(due_at=now + wait, **values).returning(row.version)
    return (await session.execute(rescheduled)).one_or_none() is not None
