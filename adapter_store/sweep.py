"""The sweep: reclaims the bytes of interrupted uploads, deleted versions, and deleted or expired files."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, exists, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.blobs.blobs import Blobs, TenantBlobs
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.base import AdapterVersionRow, TenantRow
from loragate.adapter_store.tables.files import FilePieceRow, FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.timestamps import utc_now

DEFAULT_GRACE = timedelta(hours=1)
DEFAULT_RETENTION = timedelta(days=7)
_SET_ASIDE = timedelta(days=30)


@dataclass(frozen=True)
class SweepReport:
    """The numbers of removed objects."""

    adapters: int  # digests, each with its two files
    pieces: int = 0  # of files, and parts of uploads


async def sweep(database: Database, blobs: Blobs, grace: timedelta, retention: timedelta) -> SweepReport:
    """Remove bytes that are older than `grace` and whose last version was deleted more than `retention` ago.

    The grace period protects requests in flight, which finish on a deleted version, and uploads that are being
    published. Deleted versions are kept longer so that they can be restored; rejected ones are not. Folders of tenants
    that this database never had are left alone.
    """
    now = utc_now()
    before, restorable = now - grace, now - max(grace, retention)
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
    """Remove a digest under the tenant's lock, so that a publication of these bytes waits or sees them removed."""
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


_UPLOAD_RECORD = timedelta(days=1)  # an upload's state can be read this long after its expiry
_BATCH = 100  # the tenant's writers wait during a batch


async def sweep_pieces(database: Database, owned: TenantBlobs, tenant_id: str, before: datetime) -> int:
    """Remove unneeded pieces that were written before `before`; return their number."""
    removed = 0
    old = await owned.pieces.older_than(before)
    for start in range(0, len(old), _BATCH):
        batch = old[start : start + _BATCH]
        async with database.operator() as session:
            unneeded = set(batch) - await _needed(session, tenant_id, batch, before)
        if unneeded:
            removed += await _remove(database, owned, tenant_id, unneeded, before)
    await _delete_rows(database, tenant_id, before)
    return removed


async def _remove(
    database: Database, owned: TenantBlobs, tenant_id: str, pieces: Collection[str], before: datetime
) -> int:
    """Remove pieces under the tenant's lock, so that no file is made of them at the same time."""
    async with database.operator(write=True) as session:
        lock = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
        if await session.scalar(lock) is None:
            return 0
        unneeded = set(pieces) - await _needed(session, tenant_id, pieces, before)
        row = FilePieceRow
        await session.execute(delete(row).where(row.tenant_id == tenant_id, row.id.in_(unneeded)))
        await owned.pieces.remove(*unneeded)
        return len(unneeded)


async def _needed(session: AsyncSession, tenant_id: str, pieces: Collection[str], before: datetime) -> set[str]:
    piece, file, upload = FilePieceRow, FileRow, FileUploadRow
    of_file = and_(file.tenant_id == piece.tenant_id, file.id == piece.file_id)
    of_upload = and_(upload.tenant_id == piece.tenant_id, upload.id == piece.upload_id)
    query = (
        select(piece.id)
        .outerjoin(file, of_file)
        .outerjoin(upload, of_upload)
        .where(
            piece.tenant_id == tenant_id,
            piece.id.in_(pieces),
            or_(
                and_(file.id.is_not(None), ~_file_is_gone(before)),
                and_(upload.status == UploadStatus.PENDING.value, upload.expires_at > before),
            ),
        )
    )
    return set(await session.scalars(query))


async def _delete_rows(database: Database, tenant_id: str, before: datetime) -> None:
    """Delete rows, without pieces, of uploads that ended long ago and of deleted or expired files."""
    piece, file, upload = FilePieceRow, FileRow, FileUploadRow
    uploads = delete(upload).where(
        upload.tenant_id == tenant_id,
        upload.expires_at <= before - _UPLOAD_RECORD,
        ~exists().where(piece.tenant_id == tenant_id, piece.upload_id == upload.id),
    )
    files = delete(file).where(
        file.tenant_id == tenant_id,
        _file_is_gone(before),
        ~exists().where(piece.tenant_id == tenant_id, piece.file_id == file.id),
        ~exists().where(upload.tenant_id == tenant_id, upload.file_id == file.id),
    )
    async with database.operator(write=True) as session:
        await session.execute(uploads)
        await session.execute(files)


def _file_is_gone(before: datetime) -> ColumnElement[bool]:
    gone = or_(FileRow.deleted_at <= before, FileRow.expires_at <= before)
    return func.coalesce(gone, false())
