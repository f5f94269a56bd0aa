"""The files of one tenant."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import BinaryIO

from sqlalchemy import ColumnElement, func, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.database.page import Page, cut_page
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.files.file import File, FileFacts, Purpose
from loragate.adapter_store.files.stored_piece import register_piece, stored_piece
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.names import could_be_id, shortened
from loragate.adapter_store.quotas import Room, room_of
from loragate.adapter_store.tables.files import FilePieceRow, FileRow
from loragate.adapter_store.timestamps import utc_now

MAX_LISTED = 10_000  # in one page, as in OpenAI's API
MAX_APPENDS = 10_000  # to one file
MAX_OPEN_BYTES = 1 << 30  # of one open file
OPEN_FOR = timedelta(hours=1)  # after the last append
_MAX_OPEN = 100  # files of one tenant


class FileRepository:
    """Part of a TenantScope. Every method sees that tenant's files with the given `purposes` only; a file with another
    purpose is NotFound."""

    def __init__(self, session: AsyncSession, pieces: TenantPieces, audit: AuditLog) -> None:
        self._session = session
        self._pieces = pieces
        self._audit = audit

    async def room(self) -> Room:
        """Return how many bytes the tenant may store. Raise Conflict (`quota_exceeded`) if it has too many objects."""
        return await room_of(self._session)

    async def create(self, facts: FileFacts, content: BinaryIO, size: int, format: str | None = None) -> File:
        """Store the bytes, then make the file visible. It must be the first call in a writing scope, so that the long
        write holds no connection. `format` is the format of an open file's lines.

        Raise Conflict (`quota_exceeded`, `too_many_open_files`), StorageFull, Unavailable.
        """
        self._assert_first()
        async with stored_piece(self._session, self._pieces, content, size) as piece_id:
            if facts.open:
                await self._check_open()
            file = await self.add(facts, size, format)
            await self._place(piece_id, file.id, 0)
            return file

    async def append(
        self, file_id: str, purposes: Collection[Purpose], content: BinaryIO, size: int, format: str
    ) -> File:
        """Append whole lines to an open file, and extend the time for which it is open. Like `create`, it must be the
        first call in its scope.

        Raise NotFound, Invalid for another format, Conflict (`file_closed`, `file_full`, `quota_exceeded`),
        StorageFull, Unavailable.
        """
        self._assert_first()
        async with stored_piece(self._session, self._pieces, content, size) as piece_id:
            file = await self.require_open(file_id, purposes, size)
            if file.format not in (None, format):
                raise _other_format(file.format, format)
            longer = {"size_bytes": file.size_bytes + size, "open_until": utc_now() + OPEN_FOR, "format": format}
            await self._session.execute(update(FileRow).where(FileRow.id == file_id).values(**longer))
            await self._place(piece_id, file_id, await self._count(file_id))
            return await self.get(file_id, purposes)

    async def require_open(self, file_id: str, purposes: Collection[Purpose], size: int = 0) -> File:
        """Return the file if it can take `size` more bytes. Raise NotFound, Conflict (`file_closed`, `file_full`)."""
        file = await self.get(file_id, purposes)
        if not file.is_open:
            words = (
                "The file is closed, so nothing can be appended. A file is open only if it was created with `open`, "
                f"until it is closed or nothing is appended for {OPEN_FOR.total_seconds() / 60:.0f} minutes."
            )
            raise Conflict(words, code="file_closed", param="file_id")
        if file.size_bytes + size > MAX_OPEN_BYTES or await self._count(file_id) > MAX_APPENDS:
            words = (
                f"The file is full: the maximum is {MAX_OPEN_BYTES} bytes and {MAX_APPENDS} appends. Close it and "
                "continue with another file."
            )
            raise Conflict(words, code="file_full", param="file_id")
        return file

    async def close(self, file_id: str, purposes: Collection[Purpose]) -> File:
        """Close a file for good. The audit log records this and not each append, just as it records an upload's end
        and not its parts. Raise NotFound."""
        file = await self.get(file_id, purposes)
        if file.open_until is not None:
            await self._session.execute(update(FileRow).where(FileRow.id == file_id).values(open_until=None))
            await self._audit.record("file.close", f"file:{file_id}", after={"size_bytes": file.size_bytes})
        return await self.get(file_id, purposes)

    async def add(self, facts: FileFacts, size: int, format: str | None = None) -> File:
        """Add the row only."""
        now = utc_now()
        file = File(
            id=f"file-{random_base62(24)}",
            filename=facts.filename,
            purpose=facts.purpose,
            size_bytes=size,
            created_at=now,
            expires_at=facts.expires_at(now),
            open_until=now + OPEN_FOR if facts.open else None,
            format=format,
        )
        row = insert(FileRow).values(
            id=file.id,
            filename=file.filename,
            purpose=file.purpose.value,
            size_bytes=size,
            created_at=now,
            expires_at=file.expires_at,
            open_until=file.open_until,
            format=format,
        )
        await self._session.execute(row)
        made = {"purpose": file.purpose.value, "size_bytes": size}
        await self._audit.record("file.create", f"file:{file.id}", after=made)
        return file

    async def list(
        self, purposes: Collection[Purpose], *, after: str | None = None, limit: int = MAX_LISTED, oldest: bool = False
    ) -> Page[File]:
        """Return files, newest or `oldest` first; `after` is the id of the last one seen. Raise Invalid."""
        row = FileRow
        order = (row.created_at, row.id) if oldest else (row.created_at.desc(), row.id.desc())
        query = select(row).where(_alive(), row.purpose.in_([each.value for each in purposes])).order_by(*order)
        if after is not None:
            place = tuple_(*(await self._position(after)))
            here = tuple_(row.created_at, row.id)
            query = query.where(here > place if oldest else here < place)
        rows = (await self._session.scalars(query.limit(limit + 1))).all()
        return cut_page([file_of(row) for row in rows], limit)

    async def get(self, file_id: str, purposes: Collection[Purpose], *, param: str = "file_id") -> File:
        """Return a file. Raise NotFound, which names `param`."""
        row = None
        if could_be_id(file_id):
            query = select(FileRow).where(FileRow.id == file_id, _alive()).execution_options(populate_existing=True)
            row = (await self._session.scalars(query)).one_or_none()
        if row is None or row.purpose not in purposes:
            raise NotFound(f"The file `{shortened(file_id)}` does not exist.", code="file_not_found", param=param)
        return file_of(row)

    async def pieces(self, file_id: str, *, skip: int = 0) -> Sequence[str]:
        """Return the ids of the file's pieces in order, without the first `skip`."""
        row = FilePieceRow
        query = select(row.id).where(row.file_id == file_id, row.position >= skip).order_by(row.position)
        return (await self._session.scalars(query)).all()

    async def pieces_of(self, file: File) -> Sequence[str]:
        """Return the ids of the pieces of `file` as it was, without later appends."""
        row = FilePieceRow
        query = select(row.id, row.size_bytes).where(row.file_id == file.id).order_by(row.position)
        found, left = [], file.size_bytes
        for piece in await self._session.execute(query):
            if left:
                found.append(piece.id)
                left -= piece.size_bytes
        return found

    async def delete(self, file_id: str, purposes: Collection[Purpose]) -> None:
        """Delete a file. A later sweep removes its bytes, so reads in progress complete."""
        file = await self.get(file_id, purposes)
        await self._session.execute(update(FileRow).where(FileRow.id == file_id).values(deleted_at=utc_now()))
        was = {"purpose": file.purpose.value, "size_bytes": file.size_bytes}
        await self._audit.record("file.delete", f"file:{file_id}", before=was)

    def _assert_first(self) -> None:
        assert not self._session.in_transaction(), "bytes are stored first in a scope, while it holds no connection"

    async def _place(self, piece_id: str, file_id: str, position: int) -> None:
        await register_piece(self._session, self._pieces, piece_id, file_id=file_id, position=position)

    async def _count(self, file_id: str) -> int:
        query = select(func.count(FilePieceRow.id)).where(FilePieceRow.file_id == file_id)
        return await self._session.scalar(query) or 0

    async def _check_open(self) -> None:
        now_open = select(func.count(FileRow.id)).where(_alive(), FileRow.open_until > utc_now())
        if (await self._session.scalar(now_open) or 0) >= _MAX_OPEN:
            words = f"This tenant already has {_MAX_OPEN} open files, the maximum; close some."
            raise Conflict(words, code="too_many_open_files", param="open")

    async def _position(self, file_id: str) -> tuple[object, object]:
        row = None
        if could_be_id(file_id):
            query = select(FileRow.created_at, FileRow.id).where(FileRow.id == file_id)
            row = (await self._session.execute(query)).one_or_none()
        if row is None:
            raise Invalid("`after` is not the id of an item of this list.", param="after")
        return row.created_at, row.id


def file_of(row: FileRow) -> File:
    return File(
        id=row.id,
        filename=row.filename,
        purpose=Purpose(row.purpose),
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        expires_at=row.expires_at,
        open_until=row.open_until,
        format=row.format,
    )


def _other_format(format: str | None, other: str) -> Invalid:
    words = f"The file's lines are in the format {format}, but these are in {other}; a file has one format."
    return Invalid(words, code="invalid_lines", param="data")


def _alive() -> ColumnElement[bool]:
    return FileRow.deleted_at.is_(None) & or_(FileRow.expires_at.is_(None), FileRow.expires_at > utc_now())
