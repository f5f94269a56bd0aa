"""The bytes of training: states of runs, as files that no API shows, and the adapters that are sampled from."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.blobs.blobs import TenantBlobs
from loragate.adapter_store.files.stored_piece import register_piece, stored_piece
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.publishing.registration import record_blob
from loragate.adapter_store.publishing.staging import Stage, StagedAdapter
from loragate.adapter_store.quotas import check_rank, check_storage, limits_of
from loragate.adapter_store.tables.files import FilePieceRow, FileRow
from loragate.adapter_store.timestamps import utc_now
from loragate.v1 import engine_pb2

_STATE = "training-state"  # a purpose that the API does not have


class StoredStates:
    """Part of a TenantScope's training repositories. What stores bytes must be the first call in its scope, so that the
    long write holds no connection."""

    def __init__(self, session: AsyncSession, blobs: TenantBlobs, stage: Stage) -> None:
        self._session = session
        self._blobs = blobs
        self._stage = stage

    @asynccontextmanager
    async def stored(self, name: str, state: bytes) -> AsyncIterator[str]:
        """Store a state and yield the id of its file, which exists once the block has ended. Raise Conflict
        (`quota_exceeded`), StorageFull, Unavailable."""
        assert not self._session.in_transaction(), "bytes are stored first in a scope, while it holds no connection"
        async with stored_piece(self._session, self._blobs.pieces, io.BytesIO(state), len(state)) as piece_id:
            file_id, facts = f"file-{random_base62(24)}", {"size_bytes": len(state), "created_at": utc_now()}
            await self._session.execute(insert(FileRow).values(id=file_id, filename=name, purpose=_STATE, **facts))
            yield file_id
            await register_piece(self._session, self._blobs.pieces, piece_id, file_id=file_id, position=0)

    async def read(self, file_id: str) -> bytes:
        """Return the bytes of a state. Raise LookupError if they are gone, Unavailable."""
        row = FilePieceRow
        query = select(row.id).where(row.file_id == file_id).order_by(row.position)
        pieces = (await self._session.scalars(query)).all()
        if not pieces:
            raise LookupError(f"no state {file_id!r}")
        return b"".join([chunk async for chunk in self._blobs.pieces.read(pieces)])

    async def discard(self, file_id: str | None) -> None:
        """Delete a state; a later sweep removes its bytes."""
        if file_id is not None:
            await self._session.execute(update(FileRow).where(FileRow.id == file_id).values(deleted_at=utc_now()))

    async def remove(self, file_id: str | None) -> None:
        """Remove a state with its bytes, which only its trainer reads; it counts no longer."""
        if file_id is None:
            return
        row = FilePieceRow
        pieces = (await self._session.scalars(select(row.id).where(row.file_id == file_id))).all()
        await self.discard(file_id)
        await self._session.execute(delete(row).where(row.file_id == file_id))
        await self._session.commit()
        await self._blobs.pieces.remove(*pieces)

    async def store_adapter(self, config_json: bytes, tensors: bytes, manifest: engine_pb2.Manifest) -> StagedAdapter:
        """Check and store the two files of an adapter. Until `record_adapter` has recorded them, for a sampler or a
        checkpoint that keeps them, they are leftovers. Raise AdapterInvalid, StorageFull, Unavailable."""
        staged = await self._stage.check(config_json, io.BytesIO(tensors), manifest)
        size = await self._blobs.put(staged.digest, config_json, io.BytesIO(tensors))
        return replace(staged, size_bytes=size + len(config_json))

    async def record_adapter(self, digest: str, size: int, rank: int) -> None:
        """Record the bytes of an adapter that are stored. Raise Conflict (`quota_exceeded`)."""
        limits = await limits_of(self._session)
        check_rank(limits, rank)
        await record_blob(self._session, digest, size)
        await check_storage(self._session, limits)
