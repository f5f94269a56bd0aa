import asyncio
import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.errors import Conflict, Invalid, NotFound, StorageFull
from loragate.adapter_store.files import uploads as file_uploads
from loragate.adapter_store.files.file import File, FileFacts, Purpose
from loragate.adapter_store.files.upload import FileUpload, Part
from loragate.adapter_store.tables.files import FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.timestamps import utc_now

ALL = frozenset(Purpose)
TUNE = FileFacts("train.jsonl", Purpose.FINE_TUNE)
OPEN = FileFacts("growing.jsonl", Purpose.FINE_TUNE, open=True)


class TenantFiles:
    """One tenant's files; each call has its own scope."""

    def __init__(self, world: Any, tenant: Any = None) -> None:
        self.store = world.store
        self.tenant_id = (tenant or world.acme).id

    async def create(self, content: bytes = b"abc", facts: FileFacts = TUNE) -> File:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.files.create(facts, io.BytesIO(content), len(content))

    async def content(self, file_id: str) -> bytes:
        async with self.store.tenant(self.tenant_id) as scope:
            file = await scope.files.get(file_id, ALL)
            pieces = await scope.files.pieces(file.id)
        return b"".join([chunk async for chunk in self.store.read_pieces(self.tenant_id, pieces)])

    async def append(self, file: File, content: bytes, format: str = "text") -> File:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.files.append(file.id, ALL, io.BytesIO(content), len(content), format)

    async def close(self, file: File) -> File:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.files.close(file.id, ALL)

    async def expire_append(self, file: File) -> None:
        """Make the file look as if nothing had been appended for an hour."""
        past = utc_now() - timedelta(seconds=1)
        async with self.store._database.operator(write=True) as session:
            await session.execute(update(FileRow).where(FileRow.id == file.id).values(open_until=past))

    async def files(self, **options: Any) -> list[str]:
        async with self.store.tenant(self.tenant_id) as scope:
            return [file.id for file in await scope.files.list(ALL, **options)]

    async def delete(self, file_id: str) -> None:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            await scope.files.delete(file_id, ALL)

    async def upload(self, size: int, facts: FileFacts = TUNE) -> FileUpload:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.file_uploads.create(facts, "application/jsonl", size)

    async def part(self, upload: FileUpload, content: bytes) -> Part:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.file_uploads.add_part(upload.id, ALL, io.BytesIO(content), len(content))

    async def complete(self, upload: FileUpload, parts: Sequence[Part | str]) -> FileUpload:
        ids = [part if isinstance(part, str) else part.id for part in parts]
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.file_uploads.complete(upload.id, ALL, ids)

    async def cancel(self, upload: FileUpload) -> FileUpload:
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await scope.file_uploads.cancel(upload.id, ALL)

    async def status(self, upload: FileUpload) -> UploadStatus:
        async with self.store.tenant(self.tenant_id) as scope:
            return (await scope.file_uploads.get(upload.id, ALL)).status

    async def expire(self, row: Any, row_id: str) -> None:
        """Make the upload look expired."""
        past = utc_now() - timedelta(days=3)
        async with self.store._database.operator(write=True) as session:
            await session.execute(update(row).where(row.id == row_id).values(expires_at=past))

    async def limit(self, size: int) -> None:
        async with self.store.admin(write=True) as admin:
            await admin.tenants.update(self.tenant_id, limits={"max_storage_bytes": size})


@pytest.fixture
def desk(world: Any) -> TenantFiles:
    return TenantFiles(world)


async def test_a_file_is_read_back_unchanged(desk: TenantFiles) -> None:
    content = bytes(range(256)) * 10_000
    file = await desk.create(content)
    assert (file.size_bytes, file.purpose, file.expires_at) == (len(content), Purpose.FINE_TUNE, None)
    assert await desk.content(file.id) == content


async def test_lists_both_ways_by_purpose_and_by_page(desk: TenantFiles, world: Any) -> None:
    made = [(await desk.create()).id for _ in range(3)]
    adapter = (await desk.create(facts=FileFacts("a", Purpose.ADAPTER))).id
    await TenantFiles(world, world.other).create()
    assert await desk.files() == [adapter, *made[::-1]]
    assert await desk.files(oldest=True) == [*made, adapter]
    assert await desk.files(after=made[2], limit=1) == [made[1]]
    assert await desk.files(after=made[1], oldest=True) == [made[2], adapter]
    async with desk.store.tenant(desk.tenant_id) as scope:
        assert [file.id for file in await scope.files.list([Purpose.ADAPTER])] == [adapter]
        assert (await scope.files.list(ALL, limit=4)).has_more is False
        assert (await scope.files.list(ALL, limit=3)).has_more is True
        with pytest.raises(Invalid):
            await scope.files.list(ALL, after="file-x")
        with pytest.raises(NotFound):
            await scope.files.get(adapter, [Purpose.FINE_TUNE])


async def test_another_tenants_file_is_not_found(desk: TenantFiles, world: Any) -> None:
    file, upload = await desk.create(), await desk.upload(3)
    part = await desk.part(upload, b"abc")
    other_tenant = TenantFiles(world, world.other)
    theirs = await other_tenant.upload(3)
    for attempt in (
        other_tenant.content(file.id),
        other_tenant.delete(file.id),
        other_tenant.part(upload, b"abc"),
        other_tenant.complete(upload, [part]),
        other_tenant.cancel(upload),
    ):
        with pytest.raises(NotFound):
            await attempt
    with pytest.raises(Invalid, match="no part"):
        await other_tenant.complete(theirs, [part])
    with pytest.raises(Invalid):
        await other_tenant.files(after=file.id)


async def test_a_deleted_file_disappears_and_its_bytes_with_the_sweep(desk: TenantFiles, blob_files: Any) -> None:
    file = await desk.create()
    await desk.delete(file.id)
    with pytest.raises(NotFound):
        await desk.content(file.id)
    assert await desk.files() == []
    await desk.store.sweep(timedelta(hours=1))
    assert len(blob_files.names()) == 1
    report = await desk.store.sweep(timedelta(0))
    assert (report.pieces, blob_files.names()) == (1, [])


async def test_an_expired_file_is_gone(desk: TenantFiles, blob_files: Any) -> None:
    file = await desk.create(facts=FileFacts("a", Purpose.FINE_TUNE, seconds=3600))
    assert file.expires_at == file.created_at + timedelta(hours=1)
    await desk.expire(FileRow, file.id)
    assert await desk.files() == []
    assert (await desk.store.sweep(timedelta(0))).pieces == 1
    assert blob_files.names() == []


async def test_files_of_future_adapters_are_kept_for_a_day(desk: TenantFiles) -> None:
    file = await desk.create(facts=FileFacts("adapter_model.safetensors", Purpose.ADAPTER))
    assert file.expires_at == file.created_at + timedelta(days=1)


@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda: FileFacts("", Purpose.FINE_TUNE), "filename"),
        (lambda: FileFacts("a\0b", Purpose.FINE_TUNE), "filename"),
        (lambda: FileFacts("x" * 256, Purpose.FINE_TUNE), "filename"),
        (lambda: FileFacts("x", Purpose.FINE_TUNE, seconds=3599), "expires_after.seconds"),
        (lambda: FileFacts("x", Purpose.FINE_TUNE, seconds=2_592_001), "expires_after.seconds"),
    ],
)
def test_invalid_properties_are_rejected(make: Any, param: str) -> None:
    with pytest.raises(Invalid) as rejected:
        make()
    assert rejected.value.param == param


async def test_an_open_file_takes_lines_until_it_is_closed(desk: TenantFiles, blob_files: Any) -> None:
    file = await desk.create(b"", OPEN)
    assert file.is_open
    grown = [await desk.append(file, f"line {n}\n".encode()) for n in range(3)]
    assert [(each.size_bytes, each.is_open, each.format) for each in grown] == [
        (7 * n, True, "text") for n in (1, 2, 3)
    ]
    assert await desk.content(file.id) == b"line 0\nline 1\nline 2\n"
    assert (await desk.store.sweep(timedelta(0))).pieces == 0
    for closed in (await desk.close(file), await desk.close(file)):
        assert (closed.is_open, closed.size_bytes) == (False, 21)
    with pytest.raises(Conflict, match="closed"):
        await desk.append(file, b"line 3\n")
    async with desk.store.admin() as admin:
        acts = [event.action for event in await admin.audit.list(tenant_id=desk.tenant_id)]
    assert acts[:2] == ["file.close", "file.create"]
    assert (await desk.store.sweep(timedelta(0))).pieces == 0, "what was refused is gone already"
    assert await desk.content(file.id) == b"line 0\nline 1\nline 2\n"


async def test_concurrent_appends_are_serialized(desk: TenantFiles) -> None:
    file = await desk.create(b"", OPEN)
    lines = [f"line {n:02}\n".encode() for n in range(12)]
    await asyncio.gather(*(desk.append(file, line) for line in lines))
    assert sorted((await desk.content(file.id)).splitlines(keepends=True)) == lines


async def test_a_reader_sees_the_file_as_it_was(desk: TenantFiles) -> None:
    file = await desk.append(await desk.create(b"", OPEN), b"one\n")
    await desk.append(file, b"two\n")
    async with desk.store.tenant(desk.tenant_id) as scope:
        assert len(await scope.files.pieces_of(file)) == 2, "the empty one that it was made with, and the first line"
        assert len(await scope.files.pieces(file.id, skip=2)) == 1


async def test_invalid_content_is_rejected(desk: TenantFiles, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="can be open") as rejected:
        FileFacts("a", Purpose.ADAPTER, open=True)
    assert rejected.value.param == "open"
    with pytest.raises(Conflict) as closed:
        await desk.append(await desk.create(), b"x\n")
    assert (closed.value.code, closed.value.param) == ("file_closed", "file_id")
    file = await desk.append(await desk.create(b"", OPEN), b"one\n")
    with pytest.raises(Invalid, match="a file has one format"):
        await desk.append(file, b"x\n", "chat")
    with pytest.raises(NotFound):
        await TenantFiles(world, world.other).append(file, b"x\n")
    with pytest.raises(NotFound):
        await TenantFiles(world, world.other).close(file)
    await desk.limit(10)
    with pytest.raises(Conflict) as too_much:
        await desk.append(file, b"1234567\n")
    assert too_much.value.code == "quota_exceeded"
    for name, most in (("MAX_OPEN_BYTES", 5), ("MAX_APPENDS", 1)):
        with monkeypatch.context() as patched:
            patched.setattr(f"loragate.adapter_store.files.repository.{name}", most)
            with pytest.raises(Conflict) as full:
                await desk.append(file, b"x\n")
            assert full.value.code == "file_full"
    monkeypatch.setattr("loragate.adapter_store.files.repository._MAX_OPEN", 1)
    with pytest.raises(Conflict) as too_many:
        await desk.create(b"", OPEN)
    assert (too_many.value.code, too_many.value.param) == ("too_many_open_files", "open")
    assert await desk.content(file.id) == b"one\n"


async def test_an_abandoned_open_file_closes_by_itself(desk: TenantFiles) -> None:
    file = await desk.create(b"", OPEN)
    await desk.expire_append(file)
    with pytest.raises(Conflict, match="60 minutes"):
        await desk.append(file, b"x\n")
    async with desk.store.tenant(desk.tenant_id) as scope:
        assert not (await scope.files.get(file.id, ALL)).is_open


async def test_parts_in_any_order_become_one_file(desk: TenantFiles, blob_files: Any) -> None:
    upload = await desk.upload(9)
    assert upload.status is UploadStatus.PENDING
    third, _, first, second = [await desk.part(upload, part) for part in (b"ghi", b"abc", b"abc", b"def")]
    assert await desk.files() == []
    done = await desk.complete(upload, [first, second, third])
    assert done.status is UploadStatus.COMPLETED
    assert done.file is not None
    assert await desk.content(done.file.id) == b"abcdefghi"
    assert await desk.complete(upload, [first, second, third]) == done, "the answer was lost, and it is asked again"
    with pytest.raises(Conflict, match="completed"):
        await desk.complete(upload, [third, second, first])
    with pytest.raises(Conflict, match="completed"):
        await desk.part(upload, b"x")
    with pytest.raises(Conflict, match="completed"):
        await desk.cancel(upload)
    assert (await desk.store.sweep(timedelta(0))).pieces == 1, "what was sent twice"
    assert blob_files.names() == sorted(f"{desk.tenant_id}/pieces/{part.id}" for part in (first, second, third))
    assert await desk.content(done.file.id) == b"abcdefghi"


async def test_parts_that_do_not_add_up_are_rejected(desk: TenantFiles) -> None:
    upload = await desk.upload(6)
    one, two = await desk.part(upload, b"abc"), await desk.part(upload, b"de")
    for parts, param in (([one], "part_ids"), ([one, two], "part_ids"), ([one, one], "part_ids"), ([], "part_ids")):
        with pytest.raises(Invalid) as rejected:
            await desk.complete(upload, parts)
        assert rejected.value.param == param
    with pytest.raises(Invalid) as rejected:
        await desk.complete(upload, [one, "part_x"])
    assert rejected.value.param == "part_ids.1"
    assert await desk.status(upload) is UploadStatus.PENDING
    done = await desk.complete(upload, [one, await desk.part(upload, b"def")])
    assert done.file is not None


async def test_a_cancelled_upload_is_swept(desk: TenantFiles, blob_files: Any) -> None:
    upload = await desk.upload(6)
    await desk.part(upload, b"abc")
    assert (await desk.cancel(upload)).status is UploadStatus.CANCELLED
    assert (await desk.cancel(upload)).status is UploadStatus.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        await desk.part(upload, b"abc")
    await desk.store.sweep(timedelta(0))
    assert blob_files.names() == []


async def test_an_abandoned_upload_expires(desk: TenantFiles, blob_files: Any) -> None:
    upload = await desk.upload(6)
    part = await desk.part(upload, b"abcdef")
    assert (await desk.store.sweep(timedelta(0))).pieces == 0
    await desk.expire(FileUploadRow, upload.id)
    assert await desk.status(upload) is UploadStatus.EXPIRED
    for attempt in (desk.part(upload, b"x"), desk.complete(upload, [part]), desk.cancel(upload)):
        with pytest.raises(Conflict, match="expired"):
            await attempt
    await desk.store.sweep(timedelta(0))
    assert blob_files.names() == []
    with pytest.raises(NotFound):
        await desk.status(upload)


async def test_a_part_extends_the_expiry(desk: TenantFiles) -> None:
    upload = await desk.upload(6)
    part = await desk.part(upload, b"abc")
    async with desk.store.tenant(desk.tenant_id) as scope:
        later = await scope.file_uploads.get(upload.id, ALL)
        assert list(await scope.file_uploads.parts(upload.id, ALL)) == [part]
    assert later.expires_at > upload.expires_at


async def test_bytes_count_from_the_announcement_on(desk: TenantFiles, blob_files: Any) -> None:
    await desk.limit(10)
    await desk.create(b"abc")
    upload = await desk.upload(6)
    for attempt in (desk.create(b"xy"), desk.upload(2)):
        with pytest.raises(Conflict) as rejected:
            await attempt
        assert rejected.value.code == "quota_exceeded"
    async with desk.store.tenant(desk.tenant_id) as scope:
        assert (await scope.files.room()).left == 1
    await desk.part(upload, b"abcd")
    await desk.cancel(upload)
    with pytest.raises(Conflict):
        await desk.create(b"wxyz")
    await desk.create(b"xyz")
    await desk.store.sweep(timedelta(0))
    assert len(blob_files.names()) == 2
    await desk.create(b"wxyz")


async def test_parts_are_bounded(desk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = await desk.upload(4)
    with pytest.raises(Invalid, match="whole upload"):
        await desk.part(upload, b"abcde")
    for _ in range(2):
        await desk.part(upload, b"abcd")
    with pytest.raises(Conflict) as rejected:
        await desk.part(upload, b"a")
    assert rejected.value.code == "too_many_parts"
    monkeypatch.setattr(file_uploads, "MAX_PARTS", 1)
    few = await desk.upload(2)
    part = await desk.part(few, b"ab")
    with pytest.raises(Conflict):
        await desk.part(few, b"")
    assert (await desk.complete(few, [part])).file


async def test_pending_uploads_are_bounded(desk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_uploads, "_MAX_PENDING", 1)
    upload = await desk.upload(1)
    with pytest.raises(Conflict) as rejected:
        await desk.upload(1)
    assert rejected.value.code == "too_many_uploads"
    await desk.cancel(upload)
    await desk.upload(1)


async def test_a_full_disk_creates_no_file(desk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*ignored: Any) -> None:
        raise StorageFull("full")

    monkeypatch.setattr(TenantPieces, "put", full)
    with pytest.raises(StorageFull):
        await desk.create()
    assert await desk.files() == []


async def test_the_audit_log_records_files(desk: TenantFiles) -> None:
    await desk.delete((await desk.create()).id)
    upload = await desk.upload(3)
    await desk.complete(upload, [await desk.part(upload, b"abc")])
    await desk.cancel(await desk.upload(3))
    async with desk.store.admin() as admin:
        reported = [event.action for event in await admin.audit.list(tenant_id=desk.tenant_id)]
    assert [action for action in reported[::-1] if action.startswith("file")] == [
        "file.create",
        "file.delete",
        "file_upload.create",
        "file.create",
        "file_upload.create",
        "file_upload.cancel",
    ]
