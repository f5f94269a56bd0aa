import asyncio
import io
from pathlib import Path
from typing import Any

import orjson
import pytest
from safetensors.numpy import load, save

from loragate.adapter_store.adapters.adapter import AliasTarget, VersionStatus
from loragate.adapter_store.errors import AdapterInvalid, Invalid, NotFound, Unavailable
from loragate.adapter_store.publishing.probe import no_probe


async def test_a_publication_is_numbered_and_becomes_the_default(world: Any) -> None:
    published = await world.publish("support", rank=4)
    assert (published.version, published.rank, published.status) == (1, 4, VersionStatus.READY)
    assert published.base_model == "base"
    async with world.adapters() as adapters:
        assert await adapters.version("support", 1) == published
        assert (await adapters.get("support")).aliases == {"default": (AliasTarget(1),)}
        resolved = (await adapters.route("support")).pick()
    assert (resolved.version, resolved.digest) == (1, published.digest)


async def test_bytes_come_back_as_they_were_uploaded(world: Any) -> None:
    upload = world.make_upload(seed=3)
    published = await world.publish("support", seed=3)
    stored = await world.store.open_adapter(world.acme.id, published.digest)
    assert stored.config_json == upload.config
    assert b"".join([chunk async for chunk in stored.tensors]) == upload.tensors
    with pytest.raises(LookupError):
        await world.store.open_adapter(world.other.id, published.digest)


async def test_a_path_works_like_an_open_file(world: Any, tmp_path: Path) -> None:
    upload = world.make_upload()
    path = tmp_path / "spooled"
    path.write_bytes(upload.tensors)
    published = await world.send("support", upload.config, path)
    assert published.size_bytes == len(upload.tensors)


async def test_the_same_content_twice_is_two_versions_with_one_copy(world: Any, blob_files: Any) -> None:
    first = await world.publish("support")
    second = await world.publish("support")
    assert (second.version, second.digest) == (2, first.digest)
    assert len(blob_files.names(".safetensors")) == 1


async def test_equal_content_in_other_bytes_shares_the_first_bytes(world: Any) -> None:
    upload = world.make_upload()
    again = orjson.dumps(orjson.loads(upload.config), option=orjson.OPT_INDENT_2)
    labelled = save(load(upload.tensors), metadata={"format": "pt"})
    assert (again, labelled) != (upload.config, upload.tensors)
    first = await world.publish("support")
    second = await world.send("support", again, io.BytesIO(labelled))
    assert (await world.store.open_adapter(world.acme.id, second.digest)).config_json == upload.config
    assert (second.digest, second.size_bytes) == (first.digest, len(upload.tensors))


async def test_the_same_content_of_two_tenants_is_two_copies(world: Any, blob_files: Any) -> None:
    await world.publish("support")
    await world.publish("support", tenant=world.other)
    assert len(blob_files.names(".safetensors")) == 2


async def test_a_new_version_moves_only_the_alias_it_names(world: Any) -> None:
    await world.publish("support", seed=1)
    await world.publish("support", seed=2, alias="canary")
    async with world.adapters() as adapters:
        assert await adapters.aliases("support") == {
            "canary": (AliasTarget(2),),
            "default": (AliasTarget(1),),
        }


async def test_concurrent_publications_get_different_numbers(world: Any) -> None:
    published = await asyncio.gather(*(world.publish("support", seed=seed) for seed in range(8)))
    assert sorted(version.version for version in published) == list(range(1, 9))
    assert len({version.adapter_id for version in published}) == 1


async def test_a_rejected_adapter_leaves_nothing(world: Any, blob_files: Any) -> None:
    with pytest.raises(AdapterInvalid) as rejected:
        await world.publish("support", target_modules=["no_such_module"])
    assert rejected.value.param
    async with world.adapters() as adapters:
        assert len(await adapters.list()) == 0
    assert not blob_files.names(".safetensors")


async def test_a_non_finite_tensor_is_named(world: Any) -> None:
    upload = world.make_upload()
    broken = bytearray(upload.tensors)
    broken[-4:] = b"\x00\x00\xc0\x7f"  # NaN
    with pytest.raises(AdapterInvalid) as rejected:
        await world.send("support", upload.config, io.BytesIO(bytes(broken)))
    assert "lora_" in str(rejected.value.param)


@pytest.mark.parametrize(
    ("name", "alias", "param"),
    [
        ("a:b", "default", "name"),
        ("a@b", "default", "name"),
        ("a/b", "default", "name"),
        ("", "default", "name"),
        ("-a", "default", "name"),
        ("a" * 65, "default", "name"),
        ("ft:x", "default", "name"),
        ("base", "default", "name"),
        ("a\n", "default", "name"),
        ("a", "12", "alias"),
        ("a", "x:y", "alias"),
    ],
)
async def test_names_are_checked(world: Any, name: str, alias: str, param: str) -> None:
    with pytest.raises(Invalid) as rejected:
        await world.publish(name, alias=alias)
    assert rejected.value.param == param


async def test_without_a_manifest_nothing_is_accepted(store: Any, make_upload: Any) -> None:
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    upload = make_upload()
    with pytest.raises(Unavailable):
        async with store.tenant(tenant.id, write=True) as scope:
            await scope.publisher.publish("support", upload.config, upload.file(), probe=no_probe)


async def test_a_deleted_tenant_cannot_publish(world: Any) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.acme.id)
    with pytest.raises(NotFound):
        await world.publish("support")


async def test_there_is_no_row_without_its_bytes(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that deletes the bytes between the copy and the row makes the publication fail as a whole."""
    blobs = type(world.store.blobs.of(world.acme.id))
    put = blobs.put

    async def put_and_lose(self: Any, digest: str, *files: Any) -> int:
        size: int = await put(self, digest, *files)
        await self.remove(digest)
        return size

    monkeypatch.setattr(blobs, "put", put_and_lose)
    with pytest.raises(Unavailable):
        await world.publish("support")
    async with world.adapters() as adapters:
        assert len(await adapters.list()) == 0


async def test_version_numbers_are_never_reused(world: Any) -> None:
    await world.publish("support", seed=1)
    await world.publish("support", seed=2, alias="canary")
    async with world.adapters(write=True) as adapters:
        await adapters.set_alias("support", "canary", [AliasTarget(1)])
        await adapters.delete_version("support", 2)
    assert (await world.publish("support", seed=2)).version == 3


async def test_no_connection_is_held_while_an_upload_is_checked(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer of the same tenant gets through between the check and the row."""
    blobs = type(world.store.blobs.of(world.acme.id))
    put = blobs.put
    await world.publish("first")

    async def put_while_others_write(self: Any, *arguments: Any) -> int:
        async with asyncio.timeout(5), world.adapters(write=True) as adapters:
            await adapters.delete("first")
        size: int = await put(self, *arguments)
        return size

    monkeypatch.setattr(blobs, "put", put_while_others_write)
    await world.publish("second", seed=2)
    async with world.adapters() as adapters:
        assert [adapter.name for adapter in await adapters.list()] == ["second"]
