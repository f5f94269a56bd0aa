"""Erasure of deleted tenants: their rows go once their bytes are gone.

Bills and the audit log stay for the time that the operator has set for them. The tenant's id stays, too, because their
rows refer to it.
"""

from datetime import datetime

from sqlalchemy import exists, select, update

from loragate.adapter_store.audit.actor import SYSTEM
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.deletion import delete_some
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.sweep_holds import is_held
from loragate.adapter_store.tables.audit import AuditRow
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.files import FilePieceRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.adapter_store.tables.usage import RejectedRequestsRow, UsageRecordRow, UsageSumRow

_ROWS = 1000  # deleted in one transaction: others' writers wait for it
_KEPT = frozenset(row.__tablename__ for row in (AuditRow, RejectedRequestsRow, UsageRecordRow, UsageSumRow))


async def erase_deleted_tenants(database: Database, before: datetime) -> int:
    """Erase the tenants that were deleted before this time and have no bytes left; return their number. Raise
    Unavailable."""
    erased = 0
    for tenant_id in await _erasable(database, before):
        erased += await _erase(database, tenant_id)
    return erased


async def _erasable(database: Database, before: datetime) -> list[str]:
    tenant = TenantRow
    bytes_left = (exists().where(row.tenant_id == tenant.id) for row in (AdapterBlobRow, FilePieceRow))
    query = select(tenant.id).where(
        tenant.deleted_at < before, tenant.name != tenant.id, *(~condition for condition in bytes_left)
    )
    async with database.operator() as session:
        return list(await session.scalars(query))


async def _erase(database: Database, tenant_id: str) -> bool:
    """Erase one tenant, or return False if that has to wait."""
    async with database.operator(write=True) as session:
        if await is_held(session):
            return False
        refer = update(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.rotated_from.is_not(None))
        await session.execute(refer.values(rotated_from=None))  # to rows of the same table
    for table in reversed(Base.metadata.sorted_tables):  # what refers to other rows comes first
        if "tenant_id" not in table.columns or table.name in _KEPT:
            continue
        deleted = _ROWS
        while deleted == _ROWS:
            async with database.operator(write=True) as session:
                if await is_held(session):
                    return False
                deleted = await delete_some(session, table, table.c.tenant_id == tenant_id, _ROWS)
    async with database.operator(write=True) as session:
        gone = {"name": tenant_id, "limits": TenantLimits(), "signers": ()}
        await session.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(**gone))
        await AuditLog(session, SYSTEM).record("tenant.erase", f"tenant:{tenant_id}", tenant=tenant_id)
    return True
