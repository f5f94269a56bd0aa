"""Deletion of what a deleted tenant had, a bounded number of rows in one transaction."""

from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.tables.files import FileRow
from loragate.adapter_store.tables.tenants import TenantRow

ROWS = 1000  # of each kind in one transaction: others' writers wait for it

_Owned = type[AdapterRow] | type[AdapterVersionRow] | type[FileRow]
_KINDS: tuple[tuple[_Owned, tuple[InstrumentedAttribute[Any], ...], dict[str, None]], ...] = (
    (AdapterRow, (AdapterRow.tenant_id, AdapterRow.id), {"latest_version": None}),
    (
        AdapterVersionRow,
        (AdapterVersionRow.tenant_id, AdapterVersionRow.adapter_id, AdapterVersionRow.version),
        {},
    ),
    (FileRow, (FileRow.tenant_id, FileRow.id), {}),
)


async def delete_owned(session: AsyncSession, tenant_id: str, now: datetime) -> bool:
    """Delete adapters, versions and files of a tenant; return whether that were all. A later `finish_deletions` deletes
    the others. Needs the operator's session."""
    complete = True
    for kind, key, others in _KINDS:
        living = select(*key).where(kind.tenant_id == tenant_id, kind.deleted_at.is_(None)).limit(ROWS)
        gone = update(kind).where(tuple_(*key).in_(living)).values(deleted_at=now, **others)
        result = await session.execute(gone)
        assert isinstance(result, CursorResult)
        complete = complete and result.rowcount < ROWS
    return complete


async def finish_deletions(database: Database) -> None:
    """Delete what deleted tenants still have, in batches. Raise Unavailable."""
    async with database.operator() as session:
        tenants: dict[str, datetime] = {}
        for kind, _, _ in _KINDS:
            tenants |= await _unfinished(session, kind)
    for tenant_id, deleted_at in tenants.items():
        complete = False
        while not complete:
            async with database.operator(write=True) as session:
                complete = await delete_owned(session, tenant_id, deleted_at)


async def _unfinished(session: AsyncSession, kind: _Owned) -> dict[str, datetime]:
    living = select(kind.tenant_id).where(kind.tenant_id == TenantRow.id, kind.deleted_at.is_(None)).exists()
    query = select(TenantRow.id, TenantRow.deleted_at).where(TenantRow.deleted_at.is_not(None), living)
    return {found.id: found.deleted_at for found in await session.execute(query)}
