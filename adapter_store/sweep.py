"""The sweep: reclaims the bytes of interrupted uploads, deleted versions, and deleted or expired files.

It goes by the inventory in SQL. A listing of what is stored is needed for what the inventory does not know: temporary
files, and bytes from before there was an inventory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from sqlalchemy import ColumnElement, Table, and_, delete, exists, false, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.blobs.blobs import Blobs, TenantBlobs
from loragate.adapter_store.database.clock import earliest_time
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.deletion import delete_some
from loragate.adapter_store.sweep_holds import is_held
from loragate.adapter_store.tables.adapters import AdapterVersionRow
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.files import FilePieceRow, FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.tables.tenants import TenantRow
from loragate.adapter_store.tables.training import SamplerRow, TrainingCheckpointRow

DEFAULT_GRACE = timedelta(hours=1)
DEFAULT_RETENTION = timedelta(days=7)
_SET_ASIDE = timedelta(days=30)
_UPLOAD_RECORD = timedelta(days=1)  # an upload's state can be read this long after its expiry
_BATCH = 100  # pieces; the tenant's writers wait during a batch
_ROWS = 1000  # deleted in one transaction

_Text = str | InstrumentedAttribute[str]


@dataclass(frozen=True)
class SweepReport:
    """The numbers of removed objects."""

    adapters: int  # digests, each with its two files
    pieces: int = 0  # of files, and parts of uploads
    held: bool = False  # nothing was removed, because a backup runs or a restoration is not confirmed


@dataclass(frozen=True)
class _Times:
    before: datetime  # older bytes may go
    restorable: datetime  # adapters deleted before this cannot be restored


async def sweep(
    database: Database, blobs: Blobs, grace: timedelta, retention: timedelta, *, listing: bool = True
) -> SweepReport:
    """Remove bytes that are older than `grace` and whose last version was deleted more than `retention` ago.

    The grace period protects requests in flight, which finish on a deleted version, and uploads that are being
    published. Deleted versions are kept longer so that they can be restored; rejected ones are not. With `listing`, it
    also removes what the inventory does not know, at the cost of a listing of all that is stored. Folders of tenants
    that this database never had are left alone.
    """
    async with database.operator() as session:
        if await is_held(session):
            return SweepReport(0, held=True)
        now = await earliest_time(session)
    times = _Times(now - grace, now - max(grace, retention))
    adapters = pieces = 0
    for tenant_id, digest in await _unneeded_digests(database, times):
        adapters += await _remove_digest(database, blobs.of(tenant_id), tenant_id, digest, times)
    for tenant_id, found in groupby(await _unneeded_pieces(database, times.before), key=lambda each: each[0]):
        ids = [piece_id for _, piece_id in found]
        pieces += await _remove_pieces(database, blobs.of(tenant_id), tenant_id, ids, times.before)
    if listing:
        await _record_stored(database)
        for tenant_id in await blobs.tenant_ids():
            owned = blobs.of(tenant_id)
            await owned.remove_temporary(times.before)
            await owned.remove_set_aside(times.before - _SET_ASIDE)
            for digest in await owned.digests_older_than(times.before):
                adapters += await _remove_digest(database, owned, tenant_id, digest, times)
            ids = list(await owned.pieces.older_than(times.before))
            pieces += await _remove_pieces(database, owned, tenant_id, ids, times.before)
    await _delete_rows(database, times.before)
    return SweepReport(adapters, pieces)


async def _record_stored(database: Database) -> None:
    """Record the bytes of versions that an earlier version of this program stored."""
    row, version = AdapterBlobRow, AdapterVersionRow
    recorded = exists().where(row.tenant_id == version.tenant_id, row.digest == version.digest)
    columns = (version.tenant_id, version.digest, func.max(version.size_bytes), func.max(version.created_at))
    found = select(*columns).where(version.deleted_at.is_(None), ~recorded)
    found = found.group_by(version.tenant_id, version.digest)
    async with database.operator(write=True) as session:
        await session.execute(insert(row).from_select(["tenant_id", "digest", "size_bytes", "created_at"], found))


async def _unneeded_digests(database: Database, times: _Times) -> Sequence[tuple[str, str]]:
    """Return the tenants and digests of recorded bytes that may go."""
    row = AdapterBlobRow
    needed = _is_used(times, row.tenant_id, row.digest)
    query = select(row.tenant_id, row.digest).where(row.created_at < times.before, ~needed)
    async with database.operator() as session:
        return [(found.tenant_id, found.digest) for found in await session.execute(query)]


async def _remove_digest(database: Database, owned: TenantBlobs, tenant_id: str, digest: str, times: _Times) -> bool:
    """Remove a digest under the tenant's lock, so that a publication of these bytes waits or sees them removed."""
    async with database.operator() as session:
        if await _is_needed(session, tenant_id, digest, times):
            return False
    async with database.operator(write=True) as session:
        if not await _lock(session, tenant_id) or await _is_needed(session, tenant_id, digest, times):
            return False
        if await is_held(session):
            return False
        await owned.remove(digest)
        row = AdapterBlobRow
        await session.execute(delete(row).where(row.tenant_id == tenant_id, row.digest == digest))
    return True


async def _is_needed(session: AsyncSession, tenant_id: str, digest: str, times: _Times) -> bool:
    row = AdapterBlobRow
    young = exists().where(row.tenant_id == tenant_id, row.digest == digest, row.created_at >= times.before)
    needed = or_(young, _is_used(times, tenant_id, digest))
    return bool(await session.scalar(select(needed)))


def _is_used(times: _Times, tenant_id: _Text, digest: _Text) -> ColumnElement[bool]:
    """Return the condition that a version, a checkpoint or a sampler needs the bytes of a digest."""
    checkpoint, sampler = TrainingCheckpointRow, SamplerRow
    return or_(
        exists().where(*_needs(times, tenant_id, digest)),
        exists().where(checkpoint.tenant_id == tenant_id, checkpoint.digest == digest),
        exists().where(sampler.tenant_id == tenant_id, sampler.digest == digest),
    )


def _needs(times: _Times, tenant_id: _Text, digest: _Text) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a version needs the bytes of a digest."""
    row = AdapterVersionRow
    kept = or_(
        row.deleted_at.is_(None),
        row.deleted_at > times.before,
        and_(row.deleted_at > times.restorable, row.status != VersionStatus.REJECTED.value),
    )
    return row.tenant_id == tenant_id, row.digest == digest, kept


async def _lock(session: AsyncSession, tenant_id: str) -> bool:
    """Wait for the tenant's writers. Return False for a tenant that this database never had."""
    query = select(TenantRow.id).where(TenantRow.id == tenant_id).with_for_update(key_share=True)
    return await session.scalar(query) is not None


async def _unneeded_pieces(database: Database, before: datetime) -> Sequence[tuple[str, str]]:
    """Return the tenants and ids of recorded pieces that may go, sorted."""
    row = FilePieceRow
    query = (
        select(row.tenant_id, row.id)
        .outerjoin(FileRow, _OF_FILE)
        .outerjoin(FileUploadRow, _OF_UPLOAD)
        .where(row.created_at < before, ~_needs_piece(before))
        .order_by(row.tenant_id, row.id)
    )
    async with database.operator() as session:
        return [(found.tenant_id, found.id) for found in await session.execute(query)]


async def _remove_pieces(
    database: Database, owned: TenantBlobs, tenant_id: str, pieces: Sequence[str], before: datetime
) -> int:
    """Remove those pieces that nothing needs; return their number."""
    removed = 0
    for start in range(0, len(pieces), _BATCH):
        batch = pieces[start : start + _BATCH]
        async with database.operator() as session:
            unneeded = set(batch) - await _needed(session, tenant_id, batch, before)
        if unneeded:
            removed += await _remove_batch(database, owned, tenant_id, unneeded, before)
    return removed


async def _remove_batch(
    database: Database, owned: TenantBlobs, tenant_id: str, pieces: Collection[str], before: datetime
) -> int:
    """Remove pieces under the tenant's lock, so that no file is made of them at the same time."""
    async with database.operator(write=True) as session:
        if not await _lock(session, tenant_id) or await is_held(session):
            return 0
        unneeded = set(pieces) - await _needed(session, tenant_id, pieces, before)
        await owned.pieces.remove(*unneeded)
        row = FilePieceRow
        await session.execute(delete(row).where(row.tenant_id == tenant_id, row.id.in_(unneeded)))
        return len(unneeded)


async def _needed(session: AsyncSession, tenant_id: str, pieces: Collection[str], before: datetime) -> set[str]:
    row = FilePieceRow
    query = (
        select(row.id)
        .outerjoin(FileRow, _OF_FILE)
        .outerjoin(FileUploadRow, _OF_UPLOAD)
        .where(row.tenant_id == tenant_id, row.id.in_(pieces))
        .where(or_(row.created_at >= before, _needs_piece(before)))
    )
    return set(await session.scalars(query))


_OF_FILE = and_(FileRow.tenant_id == FilePieceRow.tenant_id, FileRow.id == FilePieceRow.file_id)
_OF_UPLOAD = and_(FileUploadRow.tenant_id == FilePieceRow.tenant_id, FileUploadRow.id == FilePieceRow.upload_id)


def _needs_piece(before: datetime) -> ColumnElement[bool]:
    """Return the condition that a file or a pending upload needs the piece."""
    upload = FileUploadRow
    in_file = and_(FileRow.id.is_not(None), ~_file_is_gone(before))
    in_upload = and_(upload.status == UploadStatus.PENDING.value, upload.expires_at > before)
    return func.coalesce(or_(in_file, in_upload), false())


async def _delete_rows(database: Database, before: datetime) -> None:
    """Delete rows, without pieces, of uploads that ended long ago and of deleted or expired files."""
    piece, file, upload = FilePieceRow, FileRow, FileUploadRow
    ended = and_(
        upload.expires_at <= before - _UPLOAD_RECORD,
        ~exists().where(piece.tenant_id == upload.tenant_id, piece.upload_id == upload.id),
    )
    gone = and_(
        _file_is_gone(before),
        ~exists().where(piece.tenant_id == file.tenant_id, piece.file_id == file.id),
        ~exists().where(upload.tenant_id == file.tenant_id, upload.file_id == file.id),
    )
    await _delete_in_batches(database, upload.metadata.tables[upload.__tablename__], ended)
    await _delete_in_batches(database, file.metadata.tables[file.__tablename__], gone)


async def _delete_in_batches(database: Database, table: Table, condition: ColumnElement[bool]) -> None:
    """Delete rows a batch at a time, so that other writers wait for a batch at most."""
    deleted = _ROWS
    while deleted == _ROWS:
        async with database.operator(write=True) as session:
            deleted = await delete_some(session, table, condition, _ROWS)


def _file_is_gone(before: datetime) -> ColumnElement[bool]:
    gone = or_(FileRow.deleted_at <= before, FileRow.expires_at <= before)
    return func.coalesce(gone, false())
