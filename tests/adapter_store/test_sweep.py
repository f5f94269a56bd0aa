import errno
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fsspec.core import url_to_fs

from loragate.adapter_store.blobs import filesystem as objects
from loragate.adapter_store.blobs import s3
from loragate.adapter_store.blobs.blobs import TenantBlobs
from loragate.adapter_store.errors import StorageFull
from loragate.adapter_store.store import Store

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


async def test_old_bytes_of_a_version_deleted_just_now_are_kept(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request in flight may still need them."""
    published = await world.publish("support")

    async def all_are_old(blobs: TenantBlobs, moment: datetime) -> tuple[str, ...]:
        return (published.digest,)

    monkeypatch.setattr(TenantBlobs, "digests_older_than", all_are_old)
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    assert await _swept(world, timedelta(hours=1)) == 0


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
