"""Reclaims bytes that nothing needs: of uploads that were cut off, of deleted versions, of files that are gone."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.blobs.blobs import Blobs, TenantBlobs
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.piece_sweep import sweep_pieces
from loragate.adapter_store.tables.base import AdapterVersionRow, TenantRow
from loragate.adapter_store.timestamps import utc_now

DEFAULT_GRACE = timedelta(hours=1)
DEFAULT_KEPT = timedelta(days=7)
_SET_ASIDE = timedelta(days=30)


@dataclass(frozen=True)
class SweepReport:
    """What one sweep removed."""

    adapters: int  # digests, each with its two files
    pieces: int = 0  # of files, and parts of uploads


async def sweep(database: Database, blobs: Blobs, grace: timedelta, kept: timedelta) -> SweepReport:
    """Removes bytes that were written at least `grace`, and whose last version was deleted at least `kept` ago.

    The grace is for requests in flight, which finish on a deleted version, and for uploads that are being
    published; what was deleted is kept longer, to be restored, but for what was rejected. Folders of tenants that
    this database never had are left alone.
    """
    now = utc_now()
    before, restorable = now - grace, now - max(grace, kept)
    adapters = pieces = 0
    for tenant_id in await blobs.tenant_ids():
        owned = blobs.of(tenant_id)
        await owned.remove_temporary(before)
        await owned.remove_set_aside(before - _SET_ASIDE)
        for digest in await owned.digests_older_than(before):
            adapters += await _remove_unneeded(database, owned, tenant_id, digest, before, restorable)
        pieces += await sweep_pieces(database, owned, tenant_id, before)
    return SweepReport(adapters, pieces)


async def _remove_unneeded(
    database: Database, owned: TenantBlobs, tenant_id: str, digest: str, before: datetime, restorable: datetime
) -> bool:
    """Works under the tenant's lock, so that a publication of these bytes waits or sees them gone."""
    async with database.operator() as session:
        if await _is_needed(session, tenant_id, digest, before, restorable):
            return False
    async with database.operator(write=True) as session:
        lock = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
        if await session.scalar(lock) is None or await _is_needed(session, tenant_id, digest, before, restorable):
            return False
        await owned.remove(digest)
    return True


async def _is_needed(
    session: AsyncSession, tenant_id: str, digest: str, before: datetime, restorable: datetime
) -> bool:
    row = AdapterVersionRow
    query = select(row.version).where(
        row.tenant_id == tenant_id,
        row.digest == digest,
        or_(
            row.deleted_at.is_(None),
            row.deleted_at > before,
            and_(row.deleted_at > restorable, row.status != VersionStatus.REJECTED.value),
        ),
    )
    return (await session.scalars(query.limit(1))).first() is not None
