import errno
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fsspec.core import url_to_fs
from sqlalchemy import delete, func, select, update

from loragate.adapter_store.blobs import filesystem as objects
from loragate.adapter_store.blobs import s3
from loragate.adapter_store.database import clock
from loragate.adapter_store.errors import StorageFull
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.adapters import AdapterVersionRow
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.tenants import TenantRow
from loragate.adapter_store.tenants import deletion
from loragate.adapter_store.timestamps import utc_now

NOW = timedelta(0)


async def _swept(world: Any, grace: timedelta = NOW) -> int:
    return int((await world.store.sweep(grace, grace)).adapters)


async def test_versions_that_are_not_deleted_keep_their_bytes(world: Any) -> None:
    published = await world.publish("support")
    assert await _swept(world) == 0
    assert await world.store.open_adapter(world.acme.id, published.digest)


async def test_bytes_are_deleted_long_after_their_last_version(world: Any) -> None:
    published = await world.publish("support", seed=1)
    await world.publish("other-name", seed=1)
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    assert await _swept(world) == 0
    async with world.adapters(write=True) as adapters:
        await adapters.delete("other-name")
    assert await _swept(world, timedelta(hours=1)) == 0
    assert await _swept(world) == 1
    with pytest.raises(LookupError):
        await world.store.open_adapter(world.acme.id, published.digest)


@pytest.mark.parametrize("wrong", ["host", "database", "both"])
async def test_a_clock_that_jumps_forward_removes_nothing(
    world: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    published = await world.publish("support")
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    ahead = timedelta(days=365)

    async def later(session: Any) -> datetime:
        return utc_now() + ahead

    with monkeypatch.context() as patch:
        if wrong != "database":
            patch.setattr(clock, "utc_now", lambda: utc_now() + ahead)
        if wrong != "host":
            patch.setattr(clock, "current_time", later)
        assert await _swept(world, timedelta(days=7)) == 0
        assert await world.store.earliest_time() <= utc_now()
    assert await world.store.open_adapter(world.acme.id, published.digest)
    assert await _swept(world) == 1


async def test_old_bytes_of_a_version_deleted_just_now_are_kept(world: Any) -> None:
    """A request in flight may still need them."""
    await world.publish("support")
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterBlobRow).values(created_at=utc_now() - timedelta(days=1)))
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    assert await _swept(world, timedelta(hours=1)) == 0


async def test_the_inventory_is_enough_for_what_was_stored(
    world: Any, blob_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is listed, which would take long in a large bucket."""
    await world.publish("support")
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    upload = FileFacts("a", Purpose.ADAPTER)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        file = await scope.files.create(upload, io.BytesIO(b"abc"), 3)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        await scope.files.delete(file.id, [Purpose.ADAPTER])
    for listing in ("names", "older_than"):
        monkeypatch.delattr(objects.Objects, listing)
    monkeypatch.delattr(s3.S3Objects, "older_than")
    report = await world.store.sweep(NOW, NOW, listing=False)
    assert (report.adapters, report.pieces) == (1, 1)
    assert blob_files.names() == []
    async with world.store.tenant(world.acme.id) as scope:
        assert (await scope.files.room()).left is None


async def test_bytes_from_before_the_inventory_are_counted_from_the_next_listing_on(world: Any) -> None:
    """As those that an older version stores while both run."""
    published = await world.publish("support")
    async with world.store._database.operator(write=True) as session:
        await session.execute(delete(AdapterBlobRow))
    assert await _swept(world) == 0
    async with world.store._database.operator() as session:
        assert (await session.scalars(select(AdapterBlobRow.digest))).all() == [published.digest]


async def test_a_huge_tenant_is_deleted_in_batches(
    world: Any, blob_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "ROWS", 2)
    for name in ("a", "b", "c"):
        for seed in range(2):
            await world.publish(name, seed=seed)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.acme.id)
    async with world.store._database.operator() as session:
        left = select(func.count()).select_from(AdapterVersionRow).where(AdapterVersionRow.deleted_at.is_(None))
        assert await session.scalar(left) == 4
    assert await _swept(world, timedelta(hours=1)) == 0
    async with world.store._database.operator() as session:
        assert await session.scalar(left) == 0
        gone = set(await session.scalars(select(AdapterVersionRow.deleted_at)))
        tenant = select(TenantRow.deleted_at).where(TenantRow.id == world.acme.id)
        assert gone == {await session.scalar(tenant)}
    assert await _swept(world) == 2
    assert blob_files.names() == []


async def test_unreferenced_bytes_are_deleted_after_the_grace_period(world: Any) -> None:
    upload, digest = world.make_upload(), "sha256:" + "a" * 64
    blobs = world.store.blobs.of(world.acme.id)
    await blobs.put(digest, upload.config, upload.file())
    assert await _swept(world, timedelta(hours=1)) == 0
    assert await blobs.has(digest)
    assert await _swept(world) == 1
    assert not await blobs.has(digest)


async def test_an_upload_killed_at_any_step_is_reclaimed(world: Any, blob_files: Any) -> None:
    blob_files.put(f"{world.acme.id}/{'a' * 64}/adapter_model.safetensors")
    assert await _swept(world, timedelta(hours=1)) == 0
    assert len(blob_files.names()) == 1
    assert await _swept(world) == 1
    assert blob_files.names() == []


async def test_drafts_on_a_disk_are_reclaimed(world: Any, blob_files: Any, backend: str) -> None:
    blob_files.put(f"{world.acme.id}/tmp/draft")
    await _swept(world, timedelta(hours=1))
    assert len(blob_files.names()) == 1
    await _swept(world)
    assert len(blob_files.names()) == (0 if backend == "sqlite" else 1)  # in S3 nothing is ever written there


async def test_abandoned_multipart_uploads_are_reclaimed(
    s3_store: Store, blob_url_in_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with s3_store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    fs, root = url_to_fs(blob_url_in_s3, use_listings_cache=False)
    bucket, _, prefix = root.partition("/")
    for place in (prefix, f"{prefix}-of-others"):
        fs.call_s3("create_multipart_upload", Bucket=bucket, Key=f"{place}/{tenant.id}/{'a' * 64}/x")
    fs.pipe_file(f"{root}/{tenant.id}/notes", b"x")  # a tenant without objects is not examined

    def pending() -> list[str]:
        return [each["Key"] for each in fs.list_multipart_uploads(bucket) if prefix in each["Key"]]

    asked = s3._Bounded.call_s3

    def dated(fs: Any, method: str, **options: Any) -> Any:
        answer = asked(fs, method, **options)
        for upload in answer.get("Uploads", ()):
            upload["Initiated"] = datetime.now(UTC) - timedelta(minutes=1)  # moto reports a day in 2010
        return answer

    monkeypatch.setattr(s3._Bounded, "call_s3", dated)
    await s3_store.sweep(timedelta(hours=1))
    assert len(pending()) == 2
    await s3_store.sweep(NOW)
    assert [key.startswith(f"{prefix}-of-others/") for key in pending()] == [True]


async def test_foreign_files_are_not_touched(world: Any, blob_files: Any) -> None:
    strange = [f"tn_unknown/{'a' * 64}/adapter_config.json", "lost+found/x", f"{world.acme.id}/notes/x"]
    for name in strange:
        blob_files.put(name)
    assert await _swept(world) == 0
    assert blob_files.names() == sorted(strange)


async def test_a_full_disk_leaves_no_draft(world: Any, blob_files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*ignored: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(objects, "make_durable", full)
    monkeypatch.setattr(s3.shutil, "copyfileobj", full)
    with pytest.raises(StorageFull) as rejected:
        await world.publish("support")
    assert rejected.value.status == 507
    assert blob_files.names() == []
    async with world.adapters() as adapters:
        assert len(await adapters.list()) == 0
