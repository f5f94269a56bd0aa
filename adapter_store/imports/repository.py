"""Imports of one tenant: adapters that a gateway downloads itself."""

from datetime import datetime, timedelta

from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.base_model.manifests import Manifests
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.imports.rows import CANCELLABLE, IDLE_TIMEOUT, RUNNING, Import, ImportStatus, import_of
from loragate.adapter_store.names import check_adapter_name, check_alias_name, could_be_id
from loragate.adapter_store.tables.adapters import AdapterImportRow

RETENTION = timedelta(days=30)
"""The time for which an import can be read."""

_MAX_RUNNING = 8  # of one tenant; the others would only wait


class ImportRepository:
    """Part of a TenantScope; every method sees that tenant's imports only."""

    def __init__(self, session: AsyncSession, manifests: Manifests, audit: AuditLog) -> None:
        self._session = session
        self._manifests = manifests
        self._audit = audit

    async def create(self, source: str, name: str, alias: str | None, *, resumable: bool = True) -> Import:
        """Queue an import. If it is `resumable`, another process continues it when its own dies. Raise Invalid for
        an invalid name, Conflict if too many imports are running."""
        manifest = await self._manifests.current()
        check_adapter_name(name, base_model=manifest.model_id if manifest else None)
        check_alias_name(alias or DEFAULT_ALIAS)
        running = select(func.count(AdapterImportRow.id)).where(
            AdapterImportRow.status.in_(RUNNING),
            or_(AdapterImportRow.resumable, AdapterImportRow.updated_at > await self._silent_since()),
        )
        if (await self._session.scalar(running) or 0) >= _MAX_RUNNING:
            raise Conflict(
                f"{_MAX_RUNNING} imports are running already; wait until one of them ends.", code="too_many_imports"
            )
        now = await current_time(self._session)
        await self._session.execute(delete(AdapterImportRow).where(AdapterImportRow.created_at <= now - RETENTION))
        import_id = new_id("im")
        await self._session.execute(
            insert(AdapterImportRow).values(
                id=import_id,
                source=source,
                name=name,
                alias=alias or DEFAULT_ALIAS,
                status=ImportStatus.QUEUED,
                bytes_done=0,
                actor=self._audit.actor,
                resumable=resumable,
                attempts=0,
                created_at=now,
                updated_at=now,
            )
        )
        facts = {"source": source, "name": name, "alias": alias or DEFAULT_ALIAS}
        await self._audit.record("import.create", f"import:{import_id}", after=facts)
        return await self.get(import_id)

    async def get(self, import_id: str) -> Import:
        row = None
        if could_be_id(import_id):
            row = await self._session.scalar(select(AdapterImportRow).where(AdapterImportRow.id == import_id))
        if row is None:
            raise NotFound("The import does not exist.", code="import_not_found", param="id")
        return import_of(row, await self._silent_since())

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Import]:
        """Return imports, newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, AdapterImportRow, after=after, limit=limit)
        since = await self._silent_since()
        return Page(tuple(import_of(row, since) for row in page), page.has_more)

    async def cancel(self, import_id: str) -> Import:
        """Cancel an import; repeated calls have the same result. Raise Conflict if it is too late."""
        found = await self.get(import_id)
        if found.status is not ImportStatus.CANCELLED:
            if found.status not in CANCELLABLE or not await self._cancel(import_id):
                raise Conflict(f"The import is {found.status} and cannot be cancelled.", code="import_ended")
            await self._audit.record("import.cancel", f"import:{import_id}", before={"status": found.status})
        return await self.get(import_id)

    async def _cancel(self, import_id: str) -> bool:
        row = AdapterImportRow
        silent = and_(row.status == ImportStatus.CHECKING, row.updated_at <= await self._silent_since())
        here = (row.id == import_id, or_(row.status.in_(CANCELLABLE), silent), row.version.is_(None))
        cancelled = update(row).where(*here).values(status=ImportStatus.CANCELLED, updated_at=database_now())
        return (await self._session.execute(cancelled.returning(row.id))).one_or_none() is not None

    async def _silent_since(self) -> datetime:
        return await current_time(self._session) - IDLE_TIMEOUT
