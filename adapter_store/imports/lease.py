"""Leases of imports: a process that does not report progress loses its import, and another one starts it again.

A version is registered together with the import's claim to it, and with a deferred publication
(loragate.adapter_store.publishing.deferred). An import therefore becomes one version, however often it is started.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, exists, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from loragate.adapter_store.adapters.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.errors import Conflict, Failure
from loragate.adapter_store.imports.rows import IDLE_TIMEOUT, INTERRUPTED, RUNNING, Import, ImportStatus, import_of
from loragate.adapter_store.tables.adapters import AdapterImportRow, AdapterVersionRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow

MAX_ATTEMPTS = 5
"""Attempts to resume an import. If its process ends each time, the import may be the cause."""

_HOPELESS = Failure(
    "import_interrupted", f"The server stopped {MAX_ATTEMPTS + 1} times before the import was finished."
)

_KEY_GONE = Failure(
    "key_revoked",
    "The key that requested the import was revoked or has expired, and so was each that it was rotated to.",
)


@dataclass(frozen=True)
class WaitingImport:
    """An import that no process works on; `weight` is its tenant's."""

    tenant_id: str
    weight: float
    import_id: str


@dataclass(frozen=True)
class TakenImport:
    """An import to start again, on behalf of the `actor` who requested it."""

    wanted: Import
    actor: str


async def next_waiting(session: AsyncSession) -> WaitingImport | None:
    """Return the import that has been idle for longest. Needs the operator's session."""
    row = AdapterImportRow
    silent_since = await current_time(session) - IDLE_TIMEOUT
    query = (
        select(row.tenant_id, TenantRow.weight, row.id)
        .join(TenantRow, and_(TenantRow.id == row.tenant_id, TenantRow.deleted_at.is_(None)))
        .where(row.status.in_(RUNNING), row.updated_at <= silent_since)
        .order_by(row.updated_at)
        .limit(1)
    )
    found = (await session.execute(query)).one_or_none()
    return None if found is None else WaitingImport(*found)


async def claim_version(session: AsyncSession, wanted: Import, version: AdapterVersion) -> None:
    """Record that the import becomes this version, which is being registered. Raise Conflict if the import was
    cancelled, or another process has taken it."""
    row = AdapterImportRow
    claimed = update(row).where(*_held(wanted), row.version.is_(None))
    values = claimed.values(adapter_id=version.adapter_id, version=version.version).returning(row.id)
    if (await session.execute(values)).one_or_none() is None:
        raise Conflict("The import was cancelled, or another server took it.", code="import_lost")


class ImportLease:
    """Part of a TenantScope. Reports on an import that has ended, or was taken by another process, have no effect."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def take(self, import_id: str) -> TakenImport | None:
        """Take an idle import. None if another process was faster, or if it has ended: as a version, or as failed."""
        row = AdapterImportRow
        now = await current_time(self._session)
        silent = (row.id == import_id, row.status.in_(RUNNING), row.updated_at <= now - IDLE_TIMEOUT)
        values = {"attempts": row.attempts + 1, "updated_at": now}
        taken = update(row).where(*silent).values(**values).returning(row.id)
        if (await self._session.execute(taken)).one_or_none() is None:
            return None
        found = (await self._session.scalars(select(row).where(row.id == import_id))).one()
        wanted = import_of(found, now - IDLE_TIMEOUT)
        if found.version is not None:
            await self._conclude(wanted, found.adapter_id, found.version)
        elif await self._key_is_gone(import_id):
            await self.fail(wanted, _KEY_GONE)
        elif not found.resumable:
            await self.fail(wanted, INTERRUPTED)
        elif found.attempts > MAX_ATTEMPTS:
            await self.fail(wanted, _HOPELESS)
        else:
            await self._change(wanted, status=ImportStatus.QUEUED)
            return TakenImport(wanted, found.actor or "system")
        return None

    async def progress(self, wanted: Import, status: ImportStatus, done: int, total: int | None) -> bool:
        """Record progress; return whether this process still holds the import. It fails once the key that
        requested it is not valid, nor one that it was rotated to."""
        if await self._key_is_gone(wanted.id):
            await self.fail(wanted, _KEY_GONE)
            return False
        return await self._change(wanted, status=status, bytes_done=done, bytes_total=total)

    async def finish(self, wanted: Import, version: int) -> None:
        """Record that the import has become this version."""
        await self._change(wanted, status=ImportStatus.READY, version=version)

    async def fail(self, wanted: Import, error: Failure) -> None:
        """Record a failure, unless the import has a version, whose publication goes on."""
        row, version = AdapterImportRow, AdapterVersionRow
        own = (version.adapter_id == row.adapter_id, version.version == row.version)
        rejected = exists(select(version.version).where(*own, version.status == VersionStatus.REJECTED.value))
        failure = {"error_code": error.code, "error_message": error.message, "error_param": error.param}
        no_version = or_(row.version.is_(None), rejected.correlate(row))
        await self._change(wanted, no_version, status=ImportStatus.FAILED, **failure)

    async def release(self, wanted: Import) -> None:
        """Give the import up, so that another process can take it at once."""
        await self._change(wanted, updated_at=await current_time(self._session) - IDLE_TIMEOUT)

    async def _key_is_gone(self, import_id: str) -> bool:
        """Return whether the key that requested the import is not valid, and neither is one that it was rotated to."""
        row, key, new = AdapterImportRow, ApiKeyRow, aliased(ApiKeyRow)
        by_key = row.actor == literal("api_key:") + key.id
        keys = select(key.id).join(row, by_key).where(row.id == import_id).cte(recursive=True)
        keys = keys.union(select(new.id).where(new.rotated_from == keys.c.id))
        in_time = or_(key.expires_at.is_(None), key.expires_at > await current_time(self._session))
        query = select(and_(key.revoked_at.is_(None), in_time)).join(keys, keys.c.id == key.id)
        valid = (await self._session.scalars(query)).all()
        return bool(valid) and not any(valid)

    async def _conclude(self, wanted: Import, adapter_id: str | None, number: int) -> None:
        row = AdapterVersionRow
        query = select(row.reason).where(row.adapter_id == adapter_id, row.version == number)
        rejected = (await self._session.execute(query.where(row.status == VersionStatus.REJECTED.value))).one_or_none()
        if rejected is None:
            await self.finish(wanted, number)
        else:
            await self.fail(wanted, Failure("invalid_adapter", f"It was rejected: {rejected.reason}."))

    async def _change(self, wanted: Import, *where: ColumnElement[bool], **values: object) -> bool:
        changed = update(AdapterImportRow).where(*_held(wanted), *where)
        changed = changed.values(**{"updated_at": database_now(), **values})
        found = await self._session.execute(changed.returning(AdapterImportRow.id))
        return found.one_or_none() is not None


def _held(wanted: Import) -> tuple[ColumnElement[bool], ...]:
    row = AdapterImportRow
    return (row.id == wanted.id, row.attempts == wanted.attempt, row.status.in_(RUNNING))
