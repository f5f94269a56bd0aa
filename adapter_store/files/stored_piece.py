"""Storage of one piece of a file: its row first, so that its bytes count from before they are written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import BinaryIO

from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.errors import StoreError, Unavailable
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.quotas import check_storage
from loragate.adapter_store.tables.files import FilePieceRow
from loragate.adapter_store.timestamps import utc_now


@asynccontextmanager
async def stored_piece(
    session: AsyncSession, pieces: TenantPieces, content: BinaryIO, size: int, upload_id: str | None = None
) -> AsyncIterator[str]:
    """Store a piece, of an upload or of nothing yet, and yield its id; the block must register it.

    This commits the session's transaction before it writes, so that the long write holds no connection. An error of
    the store in the block removes the piece; what a crash leaves is removed by a sweep. Raise Conflict
    (`quota_exceeded`) before anything is written, StorageFull, Unavailable.
    """
    row, piece_id = FilePieceRow, new_id("part")
    facts = {"id": piece_id, "upload_id": upload_id, "size_bytes": size, "created_at": utc_now()}
    await session.execute(insert(row).values(stored=False, **facts))
    await check_storage(session)
    await session.commit()
    try:
        await pieces.put(piece_id, content)
        yield piece_id
    except StoreError:
        await session.rollback()
        with suppress(StoreError):
            await pieces.remove(piece_id)
            await session.execute(delete(row).where(row.id == piece_id, row.stored.is_(False)))
            await session.commit()
        raise


async def register_piece(session: AsyncSession, pieces: TenantPieces, piece_id: str, **place: object) -> datetime:
    """Record that the piece is stored, at a `place` in a file, and return when it was created.

    Raise Unavailable if a sweep has removed it.
    """
    row = FilePieceRow
    registered = update(row).where(row.id == piece_id).values(stored=True, **place).returning(row.created_at)
    created_at = (await session.execute(registered)).scalar_one_or_none()
    if created_at is None or not await pieces.has(piece_id):
        # A sweep needs the lock that this scope now holds, so this cannot happen again.
        raise Unavailable("A sweep removed the bytes before they were registered; send them again.")
    return created_at
