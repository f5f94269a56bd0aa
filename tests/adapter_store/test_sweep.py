import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.errors import StorageFull

NOW = timedelta(0)


async def _swept(world: Any, grace: timedelta = NOW) -> int:
    return int((await world.store.sweep(grace)).adapters)


async def test_living_versions_keep_their_bytes(world: Any) -> None:
    published = await world.publish("support")
    assert await _swept(world) == 0
    assert await world.store.open_adapter(world.acme.id, published.digest)


async def test_bytes_go_when_their_last_version_is_long_gone(world: Any) -> None:
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


async def test_old_bytes_of_a_version_deleted_just_now_stay(world: Any, tmp_path: Path) -> None:
    """A request in flight may still need them."""
    await world.publish("support")
    for path in (tmp_path / "blobs").rglob("*"):
        os.utime(path, (0, 0))
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    assert await _swept(world, timedelta(hours=1)) == 0


async def test_bytes_that_nothing_refers_to_go_after_the_grace(world: Any) -> None:
    upload, digest = world.make_upload(), "sha256:" + "a" * 64
    blobs = world.store.blobs.of(world.acme.id)
    await blobs.put(digest, upload.config, upload.file())
    assert await _swept(world, timedelta(hours=1)) == 0
    assert await blobs.has(digest)
    assert await _swept(world) == 1
    assert not await blobs.has(digest)


async def test_an_upload_cut_off_anywhere_is_reclaimed(world: Any, tmp_path: Path) -> None:
    root = tmp_path / "blobs" / world.acme.id
    half = root / ("a" * 64)
    half.mkdir(parents=True)
    (half / "adapter_model.safetensors").write_bytes(b"x")
    draft = root / "tmp" / "draft"
    draft.parent.mkdir()
    draft.write_bytes(b"x")
    assert await _swept(world, timedelta(hours=1)) == 0
    assert draft.exists()
    assert await _swept(world) == 1
    assert not draft.exists()
    assert not half.exists()


async def test_what_is_not_ours_is_left_alone(world: Any, tmp_path: Path) -> None:
    strange = [
        tmp_path / "blobs" / "tn_unknown" / ("a" * 64) / "adapter_config.json",
        tmp_path / "blobs" / "lost+found" / "x",
        tmp_path / "blobs" / world.acme.id / "notes" / "x",
    ]
    for path in strange:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    assert await _swept(world) == 0
    assert all(path.exists() for path in strange)


async def test_a_full_disk_leaves_no_draft(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from loragate.adapter_store import blobs

    def full(file: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(blobs, "make_durable", full)
    with pytest.raises(StorageFull) as refused:
        await world.publish("support")
    assert refused.value.status == 507
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    async with world.adapters() as adapters:
        assert len(await adapters.list()) == 0
