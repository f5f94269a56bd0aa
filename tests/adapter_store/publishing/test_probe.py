"""A version is invisible until the engine has computed with it."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from thinned import thinned

from loragate.adapter_store.adapters.adapter import AdapterStatus, AliasTarget, VersionStatus
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.errors import AdapterInvalid, Conflict, NotFound, Unavailable
from tests.adapter_store.conftest import SECRET_KEY, HeldProbe

NOW = timedelta(0)


async def _rejected(tenant_id: str, staged: Any) -> None:
    raise AdapterInvalid("it gives NaN")


async def _unavailable(tenant_id: str, staged: Any) -> None:
    raise Unavailable("the engine is away")


async def _send(world: Any, *, seed: int = 0, **more: Any) -> Any:
    upload = world.make_upload(seed=seed)
    return await world.send("support", upload.config, upload.file(), **more)


async def test_a_version_being_verified_is_invisible_and_blocks_nothing(world: Any) -> None:
    held = HeldProbe()
    publishing = asyncio.create_task(_send(world, probe=held))
    await held.asked.wait()
    async with world.adapters(write=True) as adapters:
        assert len(await adapters.list()) == 0
        for look in (
            adapters.get("support"),
            adapters.versions("support"),
            adapters.route("support"),
            adapters.route("support", version=1),
            adapters.set_alias("support", "x", [AliasTarget(1)]),
            adapters.delete("support"),
        ):
            with pytest.raises(NotFound):
                await look
    assert (await world.store.sweep(timedelta(hours=1), NOW)).adapters == 0
    held.verdict.set()
    assert (await publishing).version == 1


async def test_a_version_becomes_ready_and_its_alias_moves_in_one_step(world: Any) -> None:
    held = HeldProbe()
    await world.publish("support", seed=1)
    publishing = asyncio.create_task(_send(world, seed=2, probe=held, alias="default"))
    await held.asked.wait()
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 1
        assert (await adapters.get("support")).latest_version == 1
        with pytest.raises(NotFound):
            await adapters.version("support", 2)
        (verifying,) = await adapters.versions("support", status=VersionStatus.VERIFYING)
    assert (verifying.version, verifying.status) == (2, VersionStatus.VERIFYING)
    held.verdict.set()
    assert (await publishing).status is VersionStatus.READY
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 2
        assert [version.version for version in await adapters.versions("support")] == [2, 1]


@pytest.mark.parametrize(("probe", "error"), [(_rejected, AdapterInvalid), (_unavailable, Unavailable)])
async def test_a_version_that_fails_the_probe_leaves_only_its_reason(world: Any, probe: Any, error: Any) -> None:
    await world.publish("support", seed=1)
    with pytest.raises(error):
        await _send(world, seed=2, probe=probe)
    async with world.adapters() as adapters:
        assert [version.version for version in await adapters.versions("support")] == [1]
        (rejected,) = await adapters.versions("support", status=VersionStatus.REJECTED)
        assert len(await adapters.versions("support", status=VersionStatus.DELETED)) == 0
        assert (await adapters.aliases("support"))["default"] == (AliasTarget(1),)
    assert (rejected.version, rejected.status) == (2, VersionStatus.REJECTED)
    assert rejected.reason in ("it gives NaN", "the engine is away")
    async with world.store.admin() as admin:
        last = (await admin.audit.list()).items[0]
    assert (last.action, last.target) == ("adapter_version.reject", "adapter_version:support:2")
    with pytest.raises(NotFound):
        async with world.adapters(write=True) as adapters:
            await adapters.restore_version("support", 2)
    assert (await world.store.sweep(NOW)).adapters == 1  # deleted versions are kept, rejected ones are not
    with pytest.raises(LookupError):
        await world.store.open_adapter(world.acme.id, rejected.digest)


async def test_a_name_whose_first_version_is_rejected_is_free_and_cannot_be_restored(world: Any) -> None:
    with pytest.raises(AdapterInvalid):
        await _send(world, probe=_rejected)
    async with world.adapters(write=True) as adapters:
        assert len(await adapters.list()) == 0
        assert len(await adapters.list(AdapterFilter(status=AdapterStatus.DELETED))) == 0
        with pytest.raises(NotFound):
            await adapters.restore("support")
    assert (await world.publish("support", seed=2)).version == 1


async def test_a_rejected_first_version_leaves_the_name_to_another_that_is_being_verified(world: Any) -> None:
    held = HeldProbe()
    publishing = asyncio.create_task(_send(world, seed=1, probe=held))
    await held.asked.wait()
    with pytest.raises(AdapterInvalid):
        await _send(world, seed=2, probe=_rejected)
    held.verdict.set()
    assert (await publishing).version == 1
    async with world.adapters() as adapters:
        assert (await adapters.get("support")).latest_version == 1


async def test_a_later_upload_that_is_ready_first_keeps_the_alias(world: Any) -> None:
    held = HeldProbe()
    publishing = asyncio.create_task(_send(world, seed=1, probe=held))
    await held.asked.wait()
    assert (await world.publish("support", seed=2)).version == 2
    held.verdict.set()
    assert (await publishing).version == 1
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 2


async def test_an_adapter_deleted_meanwhile_stays_deleted(world: Any) -> None:
    held = HeldProbe()
    await world.publish("support", seed=1)
    publishing = asyncio.create_task(_send(world, seed=2, probe=held))
    await held.asked.wait()
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    held.verdict.set()
    with pytest.raises(Conflict, match="deleted while"):
        await publishing
    async with world.adapters() as adapters:
        assert len(await adapters.list()) == 0


async def test_no_connection_is_held_during_the_probe(world: Any) -> None:
    pool = world.store._database._engine.pool
    out = []

    async def probe(tenant_id: str, staged: Any) -> None:
        out.append(pool.checkedout() if hasattr(pool, "checkedout") else 0)
        async with asyncio.timeout(5), world.adapters(write=True) as adapters:
            assert len(await adapters.list()) == 0

    await _send(world, probe=probe)
    assert out == [0]


async def test_a_publication_that_died_during_its_probe_is_given_up(world: Any) -> None:
    class Died(BaseException):
        pass

    async def dies(tenant_id: str, staged: Any) -> None:
        raise Died

    await world.publish("other", seed=1)
    with pytest.raises(Died):
        await _send(world, seed=2, probe=dies)
    assert (await world.store.sweep(timedelta(hours=1))).adapters == 0
    assert (await world.store.sweep(NOW)).adapters == 1
    async with world.adapters() as adapters:
        assert [adapter.name for adapter in await adapters.list()] == ["other"]
    async with world.store.admin() as admin:
        assert (await admin.audit.list()).items[0].action == "adapter_version.reject"
    assert (await world.publish("support", seed=2)).version == 1


PUBLISH = """
import gc; gc.disable()  # imports create no garbage
import asyncio, sys
from pathlib import Path
from loragate.adapter_store.store import Store
from loragate.adapter_store.publishing.probe import no_probe

async def main(database_url, blob_url, secret, tenant_id, folder):
    store = await Store.open(database_url, blob_url, secret.encode())
    files = (Path(folder) / "config").read_bytes(), Path(folder) / "tensors"
    for _ in range(5):
        async with store.tenant(tenant_id, write=True) as scope:
            print((await scope.publisher.publish("support", *files, probe=no_probe)).version, flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("backend", thinned(["sqlite", "postgres"], fast={"postgres"}))
async def test_concurrent_publishing_processes_get_distinct_numbers(
    world: Any, database_url: str, blob_url: str, tmp_path: Path
) -> None:
    upload = world.make_upload()
    (tmp_path / "config").write_bytes(upload.config)
    (tmp_path / "tensors").write_bytes(upload.tensors)
    job = (database_url, blob_url, SECRET_KEY.decode(), world.acme.id, str(tmp_path))
    pipe = asyncio.subprocess.PIPE
    publishing = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", PUBLISH, *job, stdout=pipe) for _ in range(3)
    ]
    outputs = [(await process.communicate())[0] for process in publishing]
    assert [process.returncode for process in publishing] == [0, 0, 0]
    assert sorted(int(line) for output in outputs for line in output.split()) == list(range(1, 16))
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 15
        assert (await adapters.aliases("support"))["default"] == (AliasTarget(15),)
