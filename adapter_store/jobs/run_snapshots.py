"""Snapshots of runs, stored with the tenant's files, so that a worker on another machine can continue a job.

The files of a checkpoint are tenant's files that no API shows, until the job ends; they count as stored bytes. A job
has one snapshot: the new one replaces the old one in the transaction that registers it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.files.run_files import discard_run, of_run
from loragate.adapter_store.files.stored_piece import register_piece, stored_piece
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.jobs.lease import JobLease
from loragate.adapter_store.tables.files import RUN, FilePieceRow, FileRow
from loragate.adapter_store.timestamps import utc_now


@dataclass(frozen=True)
class RunSnapshot:
    """A stored checkpoint. `files` maps names within the run, which may include a folder, to ids of pieces."""

    step: int
    files: Mapping[str, str]


class RunSnapshots:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession, pieces: TenantPieces, lease: JobLease) -> None:
        self._session = session
        self._pieces = pieces
        self._lease = lease

    async def save(self, job_id: str, worker: str, step: int, files: Mapping[str, Path]) -> None:
        """Store a snapshot in place of the previous one. It must be the first call in a writing scope.

        Raise LeaseLost and Conflict (`quota_exceeded`), then nothing has changed; StorageFull, Unavailable, OSError.
        """
        assert not self._session.in_transaction(), "save must be the first call in its scope"
        async with AsyncExitStack() as stack:
            stored = {name: await stack.enter_async_context(self._stored(path)) for name, path in files.items()}
            await self._lease.require(job_id, worker)
            replaced = await self._pieces_of(job_id)
            await discard_run(self._session, job_id)
            for name, path in files.items():
                await self._add(f"{job_id}/{step}/{name}", stored[name], path.stat().st_size)
            await self._session.commit()
        # Only the lease's holder reads them, so they need not wait for a sweep, and count no longer.
        await self._pieces.remove(*replaced)
        await self._session.execute(delete(FilePieceRow).where(FilePieceRow.id.in_(replaced)))

    async def latest(self, job_id: str) -> RunSnapshot | None:
        """Return the snapshot that a run can continue from, or None."""
        pieces = select(FileRow.filename, FilePieceRow.id).join(FilePieceRow, FilePieceRow.file_id == FileRow.id)
        found = dict((await self._session.execute(pieces.where(of_run(job_id)))).tuples().all())
        steps = {int(name.split("/")[1]) for name in found}
        return (
            RunSnapshot(steps.pop(), {name.split("/", 2)[2]: piece for name, piece in found.items()}) if found else None
        )

    async def _pieces_of(self, job_id: str) -> Sequence[str]:
        query = select(FilePieceRow.id).join(FileRow, FilePieceRow.file_id == FileRow.id).where(of_run(job_id))
        return (await self._session.scalars(query)).all()

    @asynccontextmanager
    async def _stored(self, path: Path) -> AsyncIterator[str]:
        with path.open("rb") as content:
            size = content.seek(0, 2)
            async with stored_piece(self._session, self._pieces, content, size) as piece_id:
                yield piece_id

    async def _add(self, name: str, piece_id: str, size: int) -> None:
        file_id, facts = f"file-{random_base62(24)}", {"size_bytes": size, "created_at": utc_now()}
        await self._session.execute(insert(FileRow).values(id=file_id, filename=name, purpose=RUN, **facts))
        await register_piece(self._session, self._pieces, piece_id, file_id=file_id, position=0)
