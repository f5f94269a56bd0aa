"""The restoration of a backup.

All bytes are verified before anything is written. The database changes in one transaction, and last: until then, a
restoration that fails can be repeated.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from loragate.adapter_store.auth.installation import open_installation
from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.backup.archive import ArchiveReader
from loragate.adapter_store.backup.backup import Progress
from loragate.adapter_store.backup.manifest import BLOBS, TABLES
from loragate.adapter_store.backup.replay import NewEpoch, begin_epoch
from loragate.adapter_store.backup.tables import current_tables, load, tables_of
from loragate.adapter_store.blobs.blobs import Blobs
from loragate.adapter_store.blobs.filesystem import CHUNK_BYTES
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.error_mapping import blob_faults, database_faults
from loragate.adapter_store.database.schema import check_known, clear, migrate, newest_revision, record_compatibility
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import Conflict, Invalid
from loragate.adapter_store.journal import Journal, all_keys_entry, content_of, epoch_entry, numbers_entry
from loragate.adapter_store.tables.audit import AuditRow
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.tables.recovery import RestorationRow
from loragate.adapter_store.tables.tenants import TenantRow
from loragate.adapter_store.timestamps import utc_now


@dataclass(frozen=True)
class RestoreOptions:
    """`replace` an installation that has tenants. Of tenants' keys, revoke all, or keep those of which the journal
    cannot say whether they were revoked since the backup. `journal_url` is the blob store of the lost installation."""

    replace: bool = False
    revoke_keys: bool = False
    keep_keys: bool = False
    journal_url: str | None = None


async def restore(
    archive: ArchiveReader,
    database_url: str,
    blob_url: str,
    secret_keys: SecretKeys,
    options: RestoreOptions,
    *,
    place_others: Callable[[], None] = lambda: None,
    progress: Progress = lambda done, total: None,
) -> NewEpoch:
    """Restore a backup and begin a new epoch. `place_others` writes what is outside of database and blob store.

    Raises Invalid (damaged), Conflict (the target, or the keys, need a decision), SchemaMismatch, WrongSecretKey,
    Unavailable, StorageFull.
    """
    manifest = archive.manifest
    check_known(manifest.schema)
    blobs = Blobs(blob_url)
    journal = Journal(blobs)
    engine = create_engine(driver_url(database_url))
    steps = _Steps(2 * manifest.size, progress)
    try:
        with database_faults():
            async with engine.connect() as connection:
                await _require_free(connection, options.replace)
        names = set(await _journal_names(journal, options))
        complete = manifest.id in content_of(names).backups
        _require_decision(archive, complete, options)
        await asyncio.to_thread(archive.verify, steps.advance)
        await asyncio.to_thread(_write_blobs, archive, blobs, steps)
        with database_faults():
            async with engine.begin() as connection:
                await _require_free(connection, options.replace)
                await _load(connection, archive)
                session = AsyncSession(connection)
                await open_installation(session, secret_keys)
                epoch = await begin_epoch(
                    session, manifest, content_of(names), complete=complete, revoke_all=options.revoke_keys
                )
                added = {numbers_entry(epoch.version_floor), epoch_entry(epoch.number)}
                if options.revoke_keys:
                    added.add(all_keys_entry(utc_now()))
                await journal.add(sorted((names | added).difference(await journal.names())))
                await asyncio.to_thread(place_others)
    finally:
        await engine.dispose()
    return epoch


@dataclass(frozen=True)
class Restoration:
    """The last restoration. `confirmed_at` is None while the sweep is held for it."""

    epoch: int
    backup_id: str
    backup_at: datetime
    restored_at: datetime
    confirmed_at: datetime | None


async def last_restoration(database: Database) -> Restoration | None:
    """Return the last restoration; None if there was none."""
    row = RestorationRow
    columns = row.epoch, row.backup_id, row.backup_at, row.restored_at, row.confirmed_at
    async with database.operator() as session:
        found = (await session.execute(select(*columns).order_by(row.epoch.desc()).limit(1))).one_or_none()
    return None if found is None else Restoration(*found)


async def confirm(database: Database) -> bool:
    """Release the sweep; return False if no restoration waited for it."""
    row = RestorationRow
    async with database.operator(write=True) as session:
        waiting = update(row).where(row.confirmed_at.is_(None)).values(confirmed_at=utc_now())
        return bool((await session.execute(waiting.returning(row.epoch))).all())


class _Steps:
    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def advance(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)


async def _require_free(connection: AsyncConnection, replace: bool) -> None:
    has_table = await connection.run_sync(lambda there: inspect(there).has_table(TenantRow.__tablename__))
    tenant = (await connection.execute(select(TenantRow.id).limit(1))).one_or_none() if has_table else None
    if tenant is not None and not replace:
        raise Conflict(
            "The database has tenants; a restoration would replace them. Choose an empty database, or give --replace."
        )


async def _journal_names(journal: Journal, options: RestoreOptions) -> list[str]:
    names = await journal.names()
    if options.journal_url is not None:
        names += await Journal(Blobs(options.journal_url)).names()
    return names


def _require_decision(archive: ArchiveReader, complete: bool, options: RestoreOptions) -> None:
    if complete or options.revoke_keys or options.keep_keys:
        return
    raise Conflict(
        "The blob store has no journal that goes back to this backup, so it is unknown which keys were revoked since "
        f"{archive.manifest.created_at:%Y-%m-%d %H:%M} UTC. If the old blob store still exists, give it as --journal. "
        "Otherwise give --revoke-keys, or --keep-keys to let all of the backup's keys work."
    )


def _write_blobs(archive: ArchiveReader, blobs: Blobs, steps: _Steps) -> None:
    """Write the files that the blob store does not have. Its other files stay."""
    with blob_faults():
        for file in archive.manifest.files:
            kind, _, name = file.name.partition("/")
            if kind == BLOBS and not _has(blobs, name, file.size, file.sha256):
                with archive.open(file.name) as content:
                    blobs.raw.write(name, content)
            steps.advance(file.size)


def _has(blobs: Blobs, name: str, size: int, sha256: str) -> bool:
    if not blobs.raw.exists(name) or blobs.raw.size(name) != size:
        return False
    digest, file = hashlib.sha256(), blobs.raw.open(name)
    try:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    finally:
        file.close()
    return digest.hexdigest() == sha256


async def _load(connection: AsyncConnection, archive: ArchiveReader) -> None:
    """Replace the database's content by the backup's, and upgrade it to the current schema."""
    files = {file.name.partition("/")[2].removesuffix(".jsonl"): file.name for file in archive.manifest.of(TABLES)}
    schema = archive.manifest.schema
    await _clear(connection)
    await migrate(connection, schema)
    is_current = schema == newest_revision()
    tables = list(current_tables()) if is_current else await tables_of(connection, files)
    if missing := {table.name for table in tables}.difference(files):
        raise Invalid(f"The backup is damaged: it lacks the tables {', '.join(sorted(missing))}.")
    for table in tables:
        with archive.open(files[table.name]) as content:
            await load(connection, table, content)
    if not is_current:
        await migrate(connection)
    await record_compatibility(connection)


async def _clear(connection: AsyncConnection) -> None:
    """Remove all data, then the schema, whose older revisions need not fit the data."""
    if connection.dialect.name == "sqlite":
        await connection.execute(text("PRAGMA defer_foreign_keys = ON"))  # until the commit
    existing = await connection.run_sync(lambda there: inspect(there).get_table_names())
    for table in reversed(Base.metadata.sorted_tables):
        if table.name in existing and table is not AuditRow.__table__:  # which is append-only
            await connection.execute(delete(table))
    await clear(connection)
