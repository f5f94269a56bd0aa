"""Bytes that change outside loragate, on disk and in S3."""

from datetime import timedelta
from typing import Any

import pytest
from fsspec.core import url_to_fs

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.blobs.filesystem import Objects
from loragate.adapter_store.publishing.quarantine import CorruptBlob


def _damage(kept: Any, file: str, change: Any, which: int = 0) -> None:
    fs, root = url_to_fs(kept.url, use_listings_cache=False)
    name = [each for each in kept.names(file) if "quarantine" not in each][which]
    fs.pipe_file(f"{root}/{name}", change(fs.cat_file(f"{root}/{name}")))


def _flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _of_header(content: bytes) -> bytes:
    return content[:20] + b"!" + content[21:]


CHANGES = {
    "a bit of a tensor": (TENSORS_FILE, _flip),
    "a byte of the header": (TENSORS_FILE, _of_header),
    "cut short": (TENSORS_FILE, lambda content: content[:-4]),
    "cut within the header": (TENSORS_FILE, lambda content: content[:6]),
    "empty": (TENSORS_FILE, lambda content: b""),
    "longer": (TENSORS_FILE, lambda content: content + b"\0"),
    "zeros": (TENSORS_FILE, lambda content: bytes(len(content))),
    "another config": (CONFIG_FILE, lambda content: content.replace(b'"lora_alpha":8', b'"lora_alpha":9')),
    "no config": (CONFIG_FILE, lambda content: b"{"),
}


async def _read(world: Any, digest: str) -> bytes:
    stored = await world.store.open_adapter(world.acme.id, digest)
    return b"".join([chunk async for chunk in stored.tensors])


async def _statuses(world: Any, name: str) -> list[str]:
    async with world.adapters() as adapters:
        return [version.status.value for version in await adapters.versions(name)]


@pytest.mark.parametrize("what", CHANGES)
async def test_only_damaged_content_is_quarantined(world: Any, blob_files: Any, what: str) -> None:
    before = await world.publish("support", seed=1)
    received: list[None] = []
    world.store.on_damage = lambda: received.append(None)
    good = await _read(world, before.digest)
    damaged = await world.publish("support", seed=2)
    await world.publish("twin", seed=2)
    await world.publish("support", seed=2, tenant=world.other)
    file, change = CHANGES[what]
    (which,) = [
        index
        for index, name in enumerate(blob_files.names(file))
        if name.startswith(f"{world.acme.id}/{damaged.digest.removeprefix('sha256:')}")
    ]
    _damage(blob_files, file, change, which)
    with pytest.raises(CorruptBlob):
        await _read(world, damaged.digest)
    assert await _statuses(world, "support") == ["quarantined", "ready"]
    assert await _statuses(world, "twin") == ["quarantined"]
    assert await _read(world, before.digest) == good
    assert len(received) == 1
    with pytest.raises(LookupError):
        await _read(world, damaged.digest)
    async with world.store.tenant(world.other.id) as scope:
        assert [version.status.value for version in await scope.adapters.versions("support")] == ["ready"]
    async with world.store.admin() as admin:
        reported = list(await admin.audit.list(tenant_id=world.acme.id, action="adapter_version.quarantine"))
    assert {event.target for event in reported} == {"adapter_version:support:2", "adapter_version:twin:1"}
    assert all(event.after["reason"] for event in reported)
    await world.store.sweep(timedelta(0))
    assert len(blob_files.names(TENSORS_FILE)) == 3, "it is kept for who wants to know"


async def test_publishing_the_same_content_again_heals(world: Any, blob_files: Any) -> None:
    published = await world.publish("support", seed=1)
    good = await _read(world, published.digest)
    _damage(blob_files, TENSORS_FILE, _flip)
    with pytest.raises(CorruptBlob):
        await _read(world, published.digest)
    await world.publish("support", seed=1)
    assert await _statuses(world, "support") == ["ready", "ready"]
    assert await _read(world, published.digest) == good


async def test_a_read_error_quarantines_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    published = await world.publish("support")
    chunks, spoilt = Objects.chunks, [True]

    async def spoil_once(self: Any, path: str) -> Any:
        async for chunk in chunks(self, path):
            yield _flip(chunk) if spoilt.pop() else chunk
            spoilt.append(False)

    monkeypatch.setattr(Objects, "chunks", spoil_once)
    with pytest.raises(CorruptBlob):
        await _read(world, published.digest)
    assert await _statuses(world, "support") == ["ready"]
    assert await _read(world, published.digest)


async def test_the_last_chunk_is_sent_only_after_verification(
    world: Any, blob_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loragate.adapter_store.blobs.filesystem.CHUNK_BYTES", 100)
    published = await world.publish("support")
    _damage(blob_files, TENSORS_FILE, lambda content: content[:-101] + b"\xff" + content[-100:])
    stored = await world.store.open_adapter(world.acme.id, published.digest)
    got: list[bytes] = []
    with pytest.raises(CorruptBlob):
        await _collect(stored.tensors, got)
    assert 0 < len(b"".join(got)) < stored.size_bytes


async def _collect(chunks: Any, into: list[bytes]) -> None:
    async for chunk in chunks:
        into.append(chunk)  # noqa: PERF401
