"""A process that dies at any step of a publication leaves a whole version or none, and nothing for ever."""

import asyncio
import json
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.v1 import engine_pb2

SECRET = b"k" * 32
# Forks a process for each number of steps that it may take before it dies, until one gets to the end. A step is a
# call that changes the disk, a SQL statement or a commit.
PUBLISH = """
import asyncio, json, os, sys
from pathlib import Path
from sqlalchemy import event
from loragate.adapter_store import Store
from loragate.adapter_store.probe import no_probe

job = json.loads(sys.argv[1])

def publish(site, steps):
    def step(*ignored):
        nonlocal steps
        if steps == 0:
            os._exit(9)
        steps -= 1

    def stepping(function):
        def call(*arguments, **options):
            step()
            return function(*arguments, **options)
        return call

    async def run():
        store = await Store.open(f"sqlite:///{site}/store.db", f"{site}/blobs", job["secret"].encode())
        for name in ("fsync", "rename", "mkdir"):
            setattr(os, name, stepping(getattr(os, name)))
        engine = store._database._engine.sync_engine
        event.listen(engine, "before_cursor_execute", step)
        event.listen(engine, "commit", step)
        async with store.tenant(job["tenant"], write=True) as scope:
            files = Path(job["config"]).read_bytes(), Path(job["tensors"])
            await scope.publications.publish("support", *files, probe=no_probe)
        os._exit(0)

    asyncio.run(run())

for steps, site in enumerate(job["sites"]):
    child = os.fork()
    if child == 0:
        publish(site, steps)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    if code != 9:
        break
"""


@pytest.fixture
async def sites(tmp_path: Path, migrated_sqlite: Path, manifest: engine_pb2.Manifest) -> tuple[str, list[Path]]:
    """A tenant's id, and many copies of one data directory that has it and a base model."""
    origin = tmp_path / "origin"
    origin.mkdir()
    shutil.copy(migrated_sqlite, origin / "store.db")
    store = await _open(origin)
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    await store.close()
    return tenant.id, [Path(shutil.copytree(origin, tmp_path / str(steps))) for steps in range(90)]


async def _open(site: Path) -> Store:
    return await Store.open(f"sqlite:///{site}/store.db", f"{site}/blobs", SECRET)


async def test_a_publication_cut_off_anywhere(sites: Any, make_upload: Any, tmp_path: Path) -> None:
    tenant_id, directories = sites
    upload = make_upload()
    (tmp_path / "config").write_bytes(upload.config)
    (tmp_path / "tensors").write_bytes(upload.tensors)
    job = {
        "secret": SECRET.decode(),
        "tenant": tenant_id,
        "config": str(tmp_path / "config"),
        "tensors": str(tmp_path / "tensors"),
        "sites": [str(site) for site in directories],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PUBLISH, json.dumps(job), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    codes = [int(line) for line in output.split()]
    assert codes[-1] == 0
    assert set(codes[:-1]) == {9}
    assert len(codes) > 20
    outcomes = [await _outcome(site, tenant_id, upload) for site in directories[: len(codes)]]
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (0, 1)


async def _outcome(site: Path, tenant_id: str, upload: Any) -> int:
    """How many versions a crash left. They are whole, publishing goes on, and what nobody needs is reclaimed."""
    store = await _open(site)
    try:
        async with store.tenant(tenant_id) as scope:
            adapters = (await scope.adapters.list()).items
            published = len(await scope.adapters.versions("support")) if adapters else 0
            digests = {(await scope.adapters.route(adapter.name)).pick().digest for adapter in adapters}
        for digest in digests:
            await _check_bytes(store, tenant_id, digest, upload)
        async with store.tenant(tenant_id, write=True) as scope:
            again = await scope.publications.publish("support", upload.config, upload.file(), probe=no_probe)
        assert again.version in (published + 1, published + 2)  # the number of what was cut off is used up
        await _check_bytes(store, tenant_id, again.digest, upload)
        await store.sweep(timedelta(0), timedelta(0))
        assert len([path for path in (site / "blobs").rglob("*") if path.is_file()]) == 2
        return published
    finally:
        await store.close()


async def _check_bytes(store: Store, tenant_id: str, digest: str, upload: Any) -> None:
    stored = await store.open_adapter(tenant_id, digest)
    assert stored.config_json == upload.config
    assert b"".join([chunk async for chunk in stored.tensors]) == upload.tensors
