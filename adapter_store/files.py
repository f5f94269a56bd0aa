"""The files of one tenant."""

from collections.abc import Collection, Sequence
from typing import BinaryIO

from sqlalchemy import ColumnElement, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.base62 import new_id, random_base62
from loragate.adapter_store.errors import Invalid, NotFound, Unavailable
from loragate.adapter_store.file import File, FileFacts, Purpose
from loragate.adapter_store.file_tables import FilePieceRow, FileRow
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.page import Page, cut_page
from loragate.adapter_store.pieces import TenantPieces
from loragate.adapter_store.quotas import check_storage
from loragate.adapter_store.times import utc_now

MOST_LISTED = 10_000  # of one page, as with OpenAI
_ECHOED = 100  # characters of an unknown id


class FileRepository:
    """Part of a TenantScope. Every method sees that tenant's files only, and of these the `purposes` that it is told:
    one that is there for another purpose is the same NotFound."""

    def __init__(self, session: AsyncSession, pieces: TenantPieces, audit: AuditLog) -> None:
        self._session = session
        self._pieces = pieces
        self._audit = audit

    async def check_room(self, size: int) -> None:
        """Raises Conflict (`quota_exceeded`) when so many bytes would be too many."""
        await check_storage(self._session, size)

    async def create(self, facts: FileFacts, content: BinaryIO, size: int) -> File:
        """Stores its bytes, then makes it visible. It must be the first call in its scope, which has to be a writing
        one: storing takes long and holds no connection.

        Raises Conflict (`quota_exceeded`), StorageFull, Unavailable.
        """
        assert not self._session.in_transaction(), "create must be the first call in its scope"
        piece_id = new_id("part")
        await self._pieces.put(piece_id, content)
        file = await self.add(facts, size)
        piece = insert(FilePieceRow).values(
            id=piece_id, file_id=file.id, position=0, size_bytes=size, created_at=file.created_at
        )
        await self._session.execute(piece)
        await check_storage(self._session)
        if not await self._pieces.has(piece_id):
            # A sweep came between. It needs the lock that this scope holds by now, so none can come again.
            raise Unavailable("The file was swept away before it was registered; send it again.")
        return file

    async def add(self, facts: FileFacts, size: int) -> File:
        """The row alone."""
        now = utc_now()
        file = File(f"file-{random_base62(24)}", facts.filename, facts.purpose, size, now, facts.expires_at(now))
        row = insert(FileRow).values(
            id=file.id,
            filename=file.filename,
            purpose=file.purpose.value,
            size_bytes=size,
            created_at=now,
            expires_at=file.expires_at,
        )
        await self._session.execute(row)
        made = {"purpose": file.purpose.value, "size_bytes": size}
        await self._audit.record("file.create", f"file:{file.id}", after=made)
        return file

    async def list(
        self, purposes: Collection[Purpose], *, after: str | None = None, limit: int = MOST_LISTED, oldest: bool = False
    ) -> Page[File]:
        """Newest first, or `oldest` first; `after` is the id of the last one seen. Raises Invalid."""
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
        """Raises NotFound, which names `param`."""
        row = None
        if could_be_id(file_id):
            row = (await self._session.scalars(select(FileRow).where(FileRow.id == file_id, _alive()))).one_or_none()
        if row is None or row.purpose not in purposes:
            raise NotFound(f"The file `{file_id[:_ECHOED]}` does not exist.", code="file_not_found", param=param)
        return file_of(row)

    async def pieces(self, file_id: str) -> Sequence[str]:
        """What its bytes are made of, in order."""
        row = FilePieceRow
        return (await self._session.scalars(select(row.id).where(row.file_id == file_id).order_by(row.position))).all()

    async def delete(self, file_id: str, purposes: Collection[Purpose]) -> None:
        """Its bytes go with a later sweep: whoever reads them now reads on."""
        file = await self.get(file_id, purposes)
        await self._session.execute(update(FileRow).where(FileRow.id == file_id).values(deleted_at=utc_now()))
        was = {"purpose": file.purpose.value, "size_bytes": file.size_bytes}
        await self._audit.record("file.delete", f"file:{file_id}", before=was)

    async def _position(self, file_id: str) -> tuple[object, object]:
        row = None
        if could_be_id(file_id):
            query = select(FileRow.created_at, FileRow.id).where(FileRow.id == file_id)
            row = (await self._session.execute(query)).one_or_none()
        if row is None:
            raise Invalid("`after` is not the id of an item of this list.", param="after")
        return row.created_at, row.id


def file_of(row: FileRow) -> File:
    return File(row.id, row.filename, Purpose(row.purpose), row.size_bytes, row.created_at, row.expires_at)


def _alive() -> ColumnElement[bool]:
    return FileRow.deleted_at.is_(None) & or_(FileRow.expires_at.is_(None), FileRow.expires_at > utc_now())
