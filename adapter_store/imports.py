"""Imports of one tenant: adapters that a gateway fetches by itself, and what became of them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import DEFAULT_ALIAS
from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.base62 import new_id
from loragate.adapter_store.cursor import newest_first
from loragate.adapter_store.database_time import database_now
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.failure import Failure
from loragate.adapter_store.manifests import Manifests
from loragate.adapter_store.names import check_adapter_name, check_alias_name, could_be_id
from loragate.adapter_store.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.tables import AdapterImportRow

SILENCE = timedelta(minutes=1)
"""An import of which nobody has said anything for so long has died with its process."""

KEPT = timedelta(days=30)
"""For so long it is told what became of an import."""

_MOST_AT_ONCE = 8  # of one tenant; the others would only wait
_INTERRUPTED = "The server stopped before the import was done; start it again."


class ImportStatus(StrEnum):
    """What an import is doing; the last three are its ends."""

    QUEUED = "queued"
    FETCHING = "fetching"
    CHECKING = "checking"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


_CANCELLABLE = (ImportStatus.QUEUED, ImportStatus.FETCHING)
_RUNNING = (*_CANCELLABLE, ImportStatus.CHECKING)


@dataclass(frozen=True)
class Import:
    """`bytes_total` is None until the source has said it; `version` until the import is ready."""

    id: str
    source: str
    name: str
    alias: str
    status: ImportStatus
    bytes_done: int
    bytes_total: int | None
    version: int | None
    error: Failure | None
    created_at: datetime
    updated_at: datetime


class ImportRepository:
    """Part of a TenantScope; every method sees that tenant's imports only."""

    def __init__(self, session: AsyncSession, manifests: Manifests, audit: AuditLog) -> None:
        self._session = session
        self._manifests = manifests
        self._audit = audit

    async def create(self, source: str, name: str, alias: str | None) -> Import:
        """Queued. Raises Invalid for names that no adapter can have, Conflict when too many of them run."""
        manifest = await self._manifests.current()
        check_adapter_name(name, base_model=manifest.model_id if manifest else None)
        check_alias_name(alias or DEFAULT_ALIAS)
        running = select(func.count(AdapterImportRow.id)).where(
            AdapterImportRow.status.in_(_RUNNING), AdapterImportRow.updated_at > await self._silent_since()
        )
        if (await self._session.scalar(running) or 0) >= _MOST_AT_ONCE:
            raise Conflict(f"{_MOST_AT_ONCE} imports run already; wait for one of them.", code="too_many_imports")
        now = await self._now()
        await self._session.execute(delete(AdapterImportRow).where(AdapterImportRow.created_at <= now - KEPT))
        import_id = new_id("im")
        await self._session.execute(
            insert(AdapterImportRow).values(
                id=import_id,
                source=source,
                name=name,
                alias=alias or DEFAULT_ALIAS,
                status=ImportStatus.QUEUED,
                bytes_done=0,
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
        return _import_of(row, await self._silent_since())

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Import]:
        """Newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, AdapterImportRow, after=after, limit=limit)
        since = await self._silent_since()
        return Page(tuple(_import_of(row, since) for row in page), page.has_more)

    async def progress(self, import_id: str, status: ImportStatus, done: int, total: int | None) -> bool:
        """Whether it is still wanted; says so of one that was cancelled, too."""
        news = {"status": status, "bytes_done": done, "bytes_total": total}
        return await self._change(import_id, AdapterImportRow.status.in_(_RUNNING), **news)

    async def finish(self, import_id: str, version: int) -> None:
        """It has become this version."""
        await self._change(import_id, AdapterImportRow.status.in_(_RUNNING), status=ImportStatus.READY, version=version)

    async def fail(self, import_id: str, error: Failure) -> None:
        """Unless it has ended otherwise."""
        told = {"error_code": error.code, "error_message": error.message, "error_param": error.param}
        await self._change(import_id, AdapterImportRow.status.in_(_RUNNING), status=ImportStatus.FAILED, **told)

    async def cancel(self, import_id: str) -> Import:
        """What was cancelled before is answered alike. Raises Conflict when it is past that."""
        found = await self.get(import_id)
        if found.status is not ImportStatus.CANCELLED:
            cancellable = AdapterImportRow.status.in_(_CANCELLABLE)
            if found.status is ImportStatus.FAILED or not await self._change(
                import_id, cancellable, status=ImportStatus.CANCELLED
            ):
                raise Conflict(f"The import is {found.status} and cannot be cancelled.", code="import_ended")
            await self._audit.record("import.cancel", f"import:{import_id}", before={"status": found.status})
        return await self.get(import_id)

    async def _change(self, import_id: str, where: ColumnElement[bool], **values: object) -> bool:
        changed = update(AdapterImportRow).where(AdapterImportRow.id == import_id, where)
        values["updated_at"] = database_now()
        told = changed.values(**values).returning(AdapterImportRow.id)
        return (await self._session.execute(told)).one_or_none() is not None

    async def _now(self) -> datetime:
        return (await self._session.execute(select(database_now()))).scalar_one()

    async def _silent_since(self) -> datetime:
        return await self._now() - SILENCE


def _import_of(row: AdapterImportRow, silent_since: datetime) -> Import:
    status, error = ImportStatus(row.status), None
    if row.error_code is not None:
        error = Failure(row.error_code, row.error_message or "", row.error_param)
    if status in _RUNNING and row.updated_at <= silent_since:
        status, error = ImportStatus.FAILED, Failure("import_interrupted", _INTERRUPTED)
    return Import(
        id=row.id,
        source=row.source,
        name=row.name,
        alias=row.alias,
        status=status,
        bytes_done=row.bytes_done,
        bytes_total=row.bytes_total,
        version=row.version,
        error=error,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
