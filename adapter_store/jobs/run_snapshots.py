"""Snapshots of runs, stored with the tenant's files, so that a worker on another machine can continue a job.

The files of a checkpoint are tenant's files that no API shows and no quota counts, until the job ends. A job has one
snapshot: the new one replaces the old one in the transaction that registers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.files.run_files import discard_run, of_run
from loragate.adapter_store.ids import new_id, random_base62
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

        Raises LeaseLost (then nothing has changed), StorageFull, Unavailable, OSError for a file that cannot be read.
        """
        assert not self._session.in_transaction(), "save must be the first call in its scope"
        pieces = {name: await self._stored(path) for name, path in files.items()}
        await self._lease.require(job_id, worker)
        await discard_run(self._session, job_id)
        for name, path in files.items():
            await self._add(f"{job_id}/{step}/{name}", pieces[name], path.stat().st_size)
        for piece_id in pieces.values():
            if not await self._pieces.has(piece_id):
                raise Unavailable("A sweep removed the checkpoint before it was registered.")

    async def latest(self, job_id: str) -> RunSnapshot | None:
        """Return the snapshot that a run can continue from, or None."""
        pieces = select(FileRow.filename, FilePieceRow.id).join(FilePieceRow, FilePieceRow.file_id == FileRow.id)
        found = dict((await self._session.execute(pieces.where(of_run(job_id)))).tuples().all())
        steps = {int(name.split("/")[1]) for name in found}
        return (
            RunSnapshot(steps.pop(), {name.split("/", 2)[2]: piece for name, piece in found.items()}) if found else None
        )

    async def _stored(self, path: Path) -> str:
        piece_id = new_id("part")
        with path.open("rb") as content:
            await self._pieces.put(piece_id, content)
        return piece_id

    async def _add(self, name: str, piece_id: str, size: int) -> None:
        file_id, facts = f"file-{random_base62(24)}", {"size_bytes": size, "created_at": utc_now()}
        await self._session.execute(insert(FileRow).values(id=file_id, filename=name, purpose=RUN, **facts))
        piece = insert(FilePieceRow).values(id=piece_id, file_id=file_id, position=0, **facts)
        await self._session.execute(piece)
