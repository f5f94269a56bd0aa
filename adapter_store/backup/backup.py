"""A backup of a running installation.

The order makes it consistent: first the sweep is held; then what is copied from the data directory, so that a usage
record is in its file or in the database, perhaps in both; then the database, in one snapshot; then the bytes that the
snapshot refers to, which never change.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from io import BytesIO

from sqlalchemy import and_, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.backup.archive import ArchiveWriter
from loragate.adapter_store.backup.manifest import BLOBS, TABLES, ArchivedFile, Manifest
from loragate.adapter_store.backup.tables import current_tables, dump
from loragate.adapter_store.blobs.blobs import Blobs
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import newest_revision, require_compatible
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.journal import Journal, numbers_entry
from loragate.adapter_store.sweep_holds import hold_sweep
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.files import FilePieceRow, FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.timestamps import utc_now

Progress = Callable[[int, int], None]
"""Reports the bytes that are done, and those in all."""

OtherFiles = Callable[[], Iterable[tuple[str, bytes]]]
"""Returns the names and contents of files outside the database and the blob store."""


@dataclass(frozen=True)
class _Stored:
    """A file in the blob store. Not all that the inventory lists exists: some is still being written."""

    name: str
    required: bool


@dataclass(frozen=True)
class _References:
    files: tuple[_Stored, ...]
    size: int


async def back_up(
    database_url: str,
    blob_url: str,
    archive: ArchiveWriter,
    *,
    version: str,
    others: OtherFiles,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Write a complete backup. `version` is this program's.

    Raises SchemaMismatch, Unavailable, StorageFull, Conflict (it was paused for so long that the sweep ran), OSError.
    """
    database, blobs = Database(database_url), Blobs(blob_url)
    backup_id, began, journal = new_id("bk"), utc_now(), Journal(blobs)
    try:
        await require_compatible(database)
        async with hold_sweep(database, backup_id) as still_held:
            await journal.begin_backup(backup_id)
            copy = _Copy(archive, blobs)
            for name, content in others():
                copy.files.append(archive.add(name, len(content), BytesIO(content)))
            references = await _copy_tables(database, journal, copy)
            copy.expect(references.size, progress)
            for stored in references.files:
                await asyncio.to_thread(copy.blob, stored)
            await still_held()
        manifest = Manifest(
            id=backup_id,
            created_at=began,
            loragate=version,
            schema=newest_revision(),
            files=tuple(copy.files),
            missing=tuple(copy.missing),
        )
        await asyncio.to_thread(archive.finish, manifest)
    finally:
        await database.close()
    return manifest


class _Copy:
    """The files of one backup as they are added."""

    def __init__(self, archive: ArchiveWriter, blobs: Blobs) -> None:
        self.files: list[ArchivedFile] = []
        self.missing: list[str] = []
        self._archive = archive
        self.blobs = blobs
        self._done = self._total = 0
        self._progress: Progress = lambda done, total: None

    def expect(self, size: int, progress: Progress) -> None:
        self._total, self._progress = size, progress

    async def lines(self, name: str, lines: AsyncIterator[bytes]) -> None:
        with tempfile.TemporaryFile() as draft:  # a tar file needs the size first
            async for each in lines:
                draft.write(each)
            size = draft.tell()
            draft.seek(0)
            self.files.append(await asyncio.to_thread(self._archive.add, name, size, draft))

    def blob(self, stored: _Stored) -> None:
        """Copy a file. Raises OSError."""
        name = f"{BLOBS}/{stored.name}"
        try:
            size = self.blobs.raw.size(stored.name)
            source = self.blobs.raw.open(stored.name)
        except FileNotFoundError:
            if stored.required:
                self.missing.append(name)
            return
        try:
            self.files.append(self._archive.add(name, size, source, self._advance))
        finally:
            source.close()

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self._total, self._done))


async def _copy_tables(database: Database, journal: Journal, copy: _Copy) -> _References:
    """Copy the database in one snapshot; return what that refers to."""
    async with database.operator() as session:
        connection = await session.connection()
        for table in current_tables():
            await copy.lines(f"{TABLES}/{table.name}.jsonl", dump(connection, table))
        highest = await session.scalar(select(func.max(AdapterRow.last_version))) or 0
        references = await _references(session, copy.blobs)
    await journal.add([numbers_entry(highest)])
    return references


async def _references(session: AsyncSession, blobs: Blobs) -> _References:
    adapters, sizes = await _adapters(session)
    files = list[_Stored]()
    for (tenant_id, digest), required in sorted(adapters.items()):
        owned = blobs.of(tenant_id)
        files += [_Stored(blobs.raw.name_of(path), required) for path in owned.paths_of(digest)]
    async for tenant_id, piece_id, required, size in _pieces(session):
        path = blobs.of(tenant_id).pieces.path_of(piece_id)
        files.append(_Stored(blobs.raw.name_of(path), required))
        sizes += size
    return _References(tuple(files), sizes)


async def _adapters(session: AsyncSession) -> tuple[dict[tuple[str, str], bool], int]:
    """Return the tenant and digest of all adapters, each with whether its bytes must exist, and their size."""
    row, version = AdapterBlobRow, AdapterVersionRow
    recorded = await session.execute(select(row.tenant_id, row.digest, row.size_bytes))
    found: dict[tuple[str, str], bool] = {}
    size = 0
    for each in recorded:
        found[each.tenant_id, each.digest] = False
        size += each.size_bytes
    alive = version.deleted_at.is_(None), version.status != VersionStatus.QUARANTINED.value
    for used in await session.execute(select(version.tenant_id, version.digest).where(*alive).distinct()):
        found[used.tenant_id, used.digest] = True
    return found, size


async def _pieces(session: AsyncSession) -> AsyncIterator[tuple[str, str, bool, int]]:
    """Yield the tenant, id, whether it must exist, and size of all pieces of files."""
    row, file, upload = FilePieceRow, FileRow, FileUploadRow
    now = utc_now()
    of_file = and_(file.tenant_id == row.tenant_id, file.id == row.file_id)
    of_upload = and_(upload.tenant_id == row.tenant_id, upload.id == row.upload_id)
    in_file = and_(file.deleted_at.is_(None), or_(file.expires_at.is_(None), file.expires_at > now))
    in_upload = and_(upload.status == UploadStatus.PENDING.value, upload.expires_at > now)
    required = func.coalesce(and_(row.stored, or_(and_(file.id.is_not(None), in_file), in_upload)), false())
    query = (
        select(row.tenant_id, row.id, required, row.size_bytes).outerjoin(file, of_file).outerjoin(upload, of_upload)
    )
    for tenant_id, piece_id, needed, size in await session.execute(query.order_by(row.tenant_id, row.id)):
        yield tenant_id, piece_id, bool(needed), size
