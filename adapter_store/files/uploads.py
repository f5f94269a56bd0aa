"""Uploads in parts, of one tenant.

Parts arrive in any order and can be sent again; `complete` lists the parts of the file, in order, and copies no bytes.
An upload expires an hour after its last part.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import BinaryIO

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.files.file import FileFacts, Purpose, check_text
from loragate.adapter_store.files.repository import FileRepository, file_of
from loragate.adapter_store.files.stored_piece import register_piece, stored_piece
from loragate.adapter_store.files.upload import FileUpload, Part
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.names import could_be_id, shortened
from loragate.adapter_store.quotas import check_storage
from loragate.adapter_store.tables.files import FilePieceRow, FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.timestamps import utc_now

MAX_PART_BYTES = 64 << 20
MAX_PARTS = 1000
_LIFETIME = timedelta(hours=1)
_MAX_PENDING = 100
_SENT_TWICE = 2  # an upload's parts may together be this many times its size


class FileUploadRepository:
    """Part of a TenantScope; every method sees that tenant's uploads with the given `purposes` only."""

    def __init__(self, session: AsyncSession, pieces: TenantPieces, files: FileRepository, audit: AuditLog) -> None:
        self._session = session
        self._pieces = pieces
        self._files = files
        self._audit = audit

    async def create(self, facts: FileFacts, mime_type: str, size: int) -> FileUpload:
        """Create an upload; its size counts as stored from now on.

        Raise Invalid, Conflict (`quota_exceeded`, `too_many_uploads`).
        """
        check_text(mime_type, "mime_type")
        await self._check_pending()
        now = utc_now()
        row = insert(FileUploadRow).values(
            id=new_id("upload"),
            filename=facts.filename,
            purpose=facts.purpose.value,
            mime_type=mime_type,
            size_bytes=size,
            status=UploadStatus.PENDING.value,
            file_seconds=facts.seconds,
            created_at=now,
            expires_at=now + _LIFETIME,
        )
        upload = await self._upload_of((await self._session.scalars(row.returning(FileUploadRow))).one())
        await check_storage(self._session)
        made = {"purpose": facts.purpose.value, "size_bytes": size}
        await self._audit.record("file_upload.create", f"file_upload:{upload.id}", after=made)
        return upload

    async def get(self, upload_id: str, purposes: Collection[Purpose]) -> FileUpload:
        return await self._upload_of(await self._row(upload_id, purposes))

    async def require_pending(self, upload_id: str, purposes: Collection[Purpose]) -> FileUpload:
        """Raise NotFound, Conflict (`upload_not_pending`)."""
        upload = await self.get(upload_id, purposes)
        if upload.status is not UploadStatus.PENDING:
            raise Conflict(f"The upload is {upload.status.value}.", code="upload_not_pending", param="upload_id")
        return upload

    async def check_part(self, upload_id: str, purposes: Collection[Purpose], size: int) -> None:
        """Check that the upload can take a part of `size` bytes. Also raises Invalid, Conflict (`too_many_parts`)."""
        upload = await self.require_pending(upload_id, purposes)
        if size > upload.size_bytes:
            raise Invalid(
                f"The part has {size} bytes, but the whole upload has only {upload.size_bytes}.", param="data"
            )
        row = FilePieceRow
        query = select(func.count(row.id), func.coalesce(func.sum(row.size_bytes), 0)).where(row.upload_id == upload_id)
        count, sent = (await self._session.execute(query)).one()
        if count >= MAX_PARTS or sent + size > _SENT_TWICE * upload.size_bytes:
            words = (
                f"The upload has {count} parts with {sent} bytes in total and cannot take more; complete or cancel it."
            )
            raise Conflict(words, code="too_many_parts", param="upload_id")

    async def add_part(self, upload_id: str, purposes: Collection[Purpose], content: BinaryIO, size: int) -> Part:
        """Store a part; must be the first call in its scope. Raise as `check_part`, StorageFull, Unavailable."""
        assert not self._session.in_transaction(), "add_part must be the first call in its scope"
        await self.check_part(upload_id, purposes, size)
        async with stored_piece(self._session, self._pieces, content, size, upload_id) as part_id:
            await self.require_pending(upload_id, purposes)
            created_at = await register_piece(self._session, self._pieces, part_id)
            later = update(FileUploadRow).where(FileUploadRow.id == upload_id)
            await self._session.execute(later.values(expires_at=utc_now() + _LIFETIME))
            return Part(part_id, upload_id, size, created_at)

    async def parts(self, upload_id: str, purposes: Collection[Purpose]) -> Sequence[Part]:
        """Return the parts in the order of their arrival."""
        await self._row(upload_id, purposes)
        row = FilePieceRow
        query = select(row).where(row.upload_id == upload_id, row.stored).order_by(row.created_at, row.id)
        found = (await self._session.scalars(query)).all()
        return [Part(each.id, upload_id, each.size_bytes, each.created_at) for each in found]

    async def check_completion(self, upload_id: str, purposes: Collection[Purpose], part_ids: Sequence[str]) -> None:
        """Check that `complete` would accept these parts, before their bytes are read. Raise as it does."""
        row = await self._row(upload_id, purposes)
        if not await self._is_completed(row, part_ids):
            await self.require_pending(upload_id, purposes)
            await self._check_parts(row, part_ids)

    async def complete(self, upload_id: str, purposes: Collection[Purpose], part_ids: Sequence[str]) -> FileUpload:
        """Make the file of these parts; a repeated call returns it. Raise Invalid, Conflict, NotFound."""
        await self.check_completion(upload_id, purposes, part_ids)
        row = await self._row(upload_id, purposes)
        if row.status == UploadStatus.COMPLETED:
            return await self._upload_of(row)
        file = await self._files.add(FileFacts(row.filename, Purpose(row.purpose), row.file_seconds), row.size_bytes)
        for position, part_id in enumerate(part_ids):
            placed = update(FilePieceRow).where(FilePieceRow.id == part_id)
            await self._session.execute(placed.values(file_id=file.id, position=position))
        await self._end(upload_id, UploadStatus.COMPLETED, file_id=file.id)
        return await self.get(upload_id, purposes)

    async def cancel(self, upload_id: str, purposes: Collection[Purpose]) -> FileUpload:
        """Cancel an upload; a later sweep removes its parts. Raise NotFound, Conflict (`upload_not_pending`)."""
        upload = await self.get(upload_id, purposes)
        if upload.status is not UploadStatus.CANCELLED:
            await self.require_pending(upload_id, purposes)
            await self._end(upload_id, UploadStatus.CANCELLED)
            await self._audit.record("file_upload.cancel", f"file_upload:{upload_id}")
        return await self.get(upload_id, purposes)

    async def _is_completed(self, row: FileUploadRow, part_ids: Sequence[str]) -> bool:
        """Return whether the upload was completed with these parts."""
        if row.status != UploadStatus.COMPLETED or row.file_id is None:
            return False
        return list(part_ids) == list(await self._files.pieces(row.file_id))

    async def _check_pending(self) -> None:
        row = FileUploadRow
        query = select(func.count(row.id)).where(row.status == UploadStatus.PENDING.value, row.expires_at > utc_now())
        if (await self._session.scalar(query) or 0) >= _MAX_PENDING:
            raise Conflict(
                f"{_MAX_PENDING} uploads of this tenant are pending; complete or cancel some.", code="too_many_uploads"
            )

    async def _check_parts(self, upload: FileUploadRow, part_ids: Sequence[str]) -> None:
        if len(set(part_ids)) < len(part_ids):
            raise Invalid("`part_ids` must not name a part twice.", param="part_ids")
        row = FilePieceRow
        query = select(row.id, row.size_bytes).where(row.upload_id == upload.id, row.stored)
        sizes: dict[str, int] = dict(iter(await self._session.execute(query)))
        for index, part_id in enumerate(part_ids):
            if part_id not in sizes:
                words = "The upload has no part with this id."
                raise Invalid(words, code="part_not_found", param=f"part_ids.{index}")
        came = sum(sizes[part_id] for part_id in part_ids)
        if came != upload.size_bytes:
            raise Invalid(
                f"The parts have {came} bytes in total, but `bytes` was {upload.size_bytes}.",
                code="size_mismatch",
                param="part_ids",
            )

    async def _end(self, upload_id: str, status: UploadStatus, **more: object) -> None:
        ended = update(FileUploadRow).where(FileUploadRow.id == upload_id)
        await self._session.execute(ended.values(status=status.value, **more))

    async def _row(self, upload_id: str, purposes: Collection[Purpose]) -> FileUploadRow:
        row = None
        if could_be_id(upload_id):
            query = select(FileUploadRow).where(FileUploadRow.id == upload_id)
            row = (await self._session.scalars(query)).one_or_none()
        if row is None or row.purpose not in purposes:
            words = f"The upload `{shortened(upload_id)}` does not exist."
            raise NotFound(words, code="upload_not_found", param="upload_id")
        return row

    async def _upload_of(self, row: FileUploadRow) -> FileUpload:
        status, file = UploadStatus(row.status), None
        if status is UploadStatus.PENDING and row.expires_at <= utc_now():
            status = UploadStatus.EXPIRED
        if row.file_id is not None:
            made = await self._session.scalars(select(FileRow).where(FileRow.id == row.file_id))
            file = file_of(made.one())
        return FileUpload(
            id=row.id,
            filename=row.filename,
            purpose=Purpose(row.purpose),
            mime_type=row.mime_type,
            size_bytes=row.size_bytes,
            status=status,
            created_at=row.created_at,
            expires_at=row.expires_at,
            file=file,
        )
