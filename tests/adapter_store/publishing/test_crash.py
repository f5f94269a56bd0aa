"""A process that dies at any step of a publication leaves a complete version or none, and nothing behind forever."""

import asyncio
import json
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fsspec.core import url_to_fs
from migrated_sqlite import migrated_sqlite
from s3_server import S3Server
from sqlalchemy import update
from thinned import thinned

from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.imports.rows import ImportStatus
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.adapters import AdapterImportRow, DeferredPublicationRow
from loragate.adapter_store.tables.files import FileUploadRow
from loragate.adapter_store.timestamps import utc_now
from loragate.v1 import engine_pb2

SECRET = b"k" * 32
FILES = [(what, kind) for what in ("file", "parts") for kind in ("disk", "s3")]
# Forks a process for each `stride`-th number of steps that it may take before it dies, until one finishes. A step is a
# call that changes the disk, a SQL statement or a commit.
PROGRAM = """
import gc; gc.disable()  # imports create no garbage
import asyncio, io, json, os, sys
from pathlib import Path
from sqlalchemy import event
from loragate.adapter_store.store import Store
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.publishing.probe import no_probe

job = json.loads(sys.argv[1])
config, tensors = Path(job["config"]).read_bytes(), Path(job["tensors"])
facts, purposes = FileFacts("a", Purpose.FINE_TUNE), [Purpose.FINE_TUNE]

async def publish(scope):
    async with scope() as tenant:
        await tenant.publisher.publish("support", config, tensors, probe=no_probe)

async def imported(scope):
    async with scope() as tenant:
        wanted = await tenant.imports.create("hf://acme/support", "support", None)
    async with scope() as tenant:
        await tenant.publisher.publish("support", config, tensors, probe=no_probe, wanted_by=wanted)
    async with scope() as tenant:
        await tenant.import_lease.finish(wanted, 1)

async def file(scope):
    async with scope() as tenant:
        await tenant.files.create(facts, io.BytesIO(config), len(config))

async def parts(scope):
    async with scope() as tenant:
        upload = await tenant.file_uploads.create(facts, "text/plain", len(config))
    ids = []
    for part in (config[:10], config[:10], config[10:]):
        async with scope() as tenant:
            ids.append((await tenant.file_uploads.add_part(upload.id, purposes, io.BytesIO(part), len(part))).id)
    async with scope() as tenant:
        await tenant.file_uploads.complete(upload.id, purposes, ids[1:])

def act(site, blobs, steps):
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

    def step_s3():
        from fsspec.asyn import sync_wrapper
        from loragate.adapter_store.blobs.s3 import _Bounded
        _Bounded._call_s3 = stepping(_Bounded._call_s3)
        _Bounded.call_s3 = sync_wrapper(_Bounded._call_s3)

    async def run():
        store = await Store.open(f"sqlite:///{site}/store.db", blobs, job["secret"].encode())
        if blobs.startswith("s3:"):
            step_s3()
        else:
            for name in ("fsync", "rename", "mkdir"):
                setattr(os, name, stepping(getattr(os, name)))
        engine = store._database._engine.sync_engine
        event.listen(engine, "before_cursor_execute", step)
        event.listen(engine, "commit", step)
        await globals()[job["what"]](lambda: store.tenant(job["tenant"], write=True))
        os._exit(0)

    asyncio.run(run())

async def warm_up(site):
    store = await Store.open(f"sqlite:///{site}/store.db", f"{site}/blobs", job["secret"].encode())
    await globals()[job["what"]](lambda: store.tenant(job["tenant"], write=True))
    await store.close()

# What is imported on demand is imported once. No client of S3: its thread would not be in the forked processes.
site, blobs = job["sites"].pop()
asyncio.run(warm_up(site))
if blobs.startswith("s3:"):
    import s3fs
for turn, (site, blobs) in enumerate(job["sites"]):
    child = os.fork()
    if child == 0:
        act(site, blobs, turn * job["stride"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    if code != 9:
        break
"""


@pytest.fixture
async def sites(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    manifest: engine_pb2.Manifest,
) -> tuple[str, list[tuple[Path, str]]]:
    """A tenant's id, and many copies of one data directory with a base model, each with its blob store."""
    origin = tmp_path / "origin"
    origin.mkdir()
    await migrated_sqlite(origin)
    store = await _open((origin, str(origin / "blobs")))
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    await store.close()
    copies = [Path(shutil.copytree(origin, tmp_path / str(steps))) for steps in range(120)]
    server: S3Server | None = request.getfixturevalue("s3") if kind == "s3" else None
    return tenant.id, [(copy, server.new_url() if server else str(copy / "blobs")) for copy in copies]


async def _open(site: tuple[Path, str]) -> Store:
    return await Store.open(f"sqlite:///{site[0]}/store.db", site[1], SECRET)


async def _die_everywhere(what: str, sites: Any, upload: Any, tmp_path: Path, stride: int = 1) -> Any:
    """Return where each process died, and last the complete run of the one that did not."""
    tenant_id, directories = sites
    (tmp_path / "config").write_bytes(upload.config)
    (tmp_path / "tensors").write_bytes(upload.tensors)
    job = {
        "what": what,
        "stride": stride,
        "secret": SECRET.decode(),
        "tenant": tenant_id,
        "config": str(tmp_path / "config"),
        "tensors": str(tmp_path / "tensors"),
        "sites": [(str(folder), blobs) for folder, blobs in directories],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, json.dumps(job), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    codes = [int(line) for line in output.split()]
    assert codes[-1] == 0
    assert set(codes[:-1]) == {9}
    return directories[: len(codes)]


@pytest.mark.parametrize(("kind", "stride"), thinned([("disk", 1), ("s3", 1), ("disk", 4)], fast={("disk", 4)}))
async def test_a_publication_killed_at_any_step(sites: Any, make_upload: Any, tmp_path: Path, stride: int) -> None:
    upload = make_upload()
    ended = await _die_everywhere("publish", sites, upload, tmp_path, stride)
    assert len(ended) > 20 // stride
    outcomes = [await _outcome(site, sites[0], upload) for site in ended]
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["disk"])
async def test_an_import_killed_at_any_step_continues(sites: Any, make_upload: Any, tmp_path: Path) -> None:
    """It becomes one version, from the moment at which it was requested."""
    upload = make_upload()
    ended = await _die_everywhere("imported", sites, upload, tmp_path)
    assert len(ended) > 20
    some = [*ended[:-1:2], ended[-1]]
    outcomes = [await _after_recovery(site, sites[0], upload) for site in some]
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (0, 1)


async def _after_recovery(site: tuple[Path, str], tenant_id: str, upload: Any) -> int:
    """Return how many imports a crash left, once other processes have finished them."""
    store = await _open(site)
    try:
        async with store._database.operator(write=True) as session:
            long_ago = utc_now() - timedelta(days=1)
            await session.execute(update(AdapterImportRow).values(updated_at=long_ago))
            await session.execute(update(DeferredPublicationRow).values(due_at=long_ago))
        async with store.admin() as admin:
            waiting, due = await admin.published.next_import(), await admin.published.next_due()
        if waiting is not None:
            async with store.tenant(tenant_id, write=True) as scope:
                taken = await scope.import_lease.take(waiting.import_id)
            if taken is not None:
                async with store.tenant(tenant_id, write=True) as scope:
                    done = await scope.publisher.publish(
                        "support", upload.config, upload.file(), probe=no_probe, wanted_by=taken.wanted
                    )
                    await scope.import_lease.finish(taken.wanted, done.version)
        if due is not None:
            async with store.tenant(tenant_id, write=True) as scope:
                await scope.publisher.finish(due.adapter_id, due.version, no_probe)
        await store.sweep(timedelta(0), timedelta(0))
        async with store.tenant(tenant_id) as scope:
            imports = [(found.status, found.version) for found in await scope.imports.list()]
            adapters = list(await scope.adapters.list())
            versions = [each.version for one in adapters for each in await scope.adapters.versions(one.name)]
        assert imports == [(ImportStatus.READY, version) for version in versions]
        assert len(_stored(site)) == 2 * len(versions)
        return len(versions)
    finally:
        await store.close()


@pytest.mark.long
@pytest.mark.parametrize(("what", "kind"), FILES)
async def test_a_file_killed_at_any_step(what: str, sites: Any, make_upload: Any, tmp_path: Path) -> None:
    upload = make_upload()
    ended = await _die_everywhere(what, sites, upload, tmp_path)
    assert len(ended) > (8 if what == "file" else 25)
    outcomes = [await _files_after(site, sites[0], upload.config) for site in ended]
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (0, 1)


async def _files_after(site: tuple[Path, str], tenant_id: str, content: bytes) -> int:
    """Return how many files a crash left. They are complete, and once no upload is pending nothing else exists."""
    store = await _open(site)
    try:
        async with store.tenant(tenant_id) as scope:
            files = [file.id for file in await scope.files.list(Purpose)]
            pieces = [await scope.files.pieces(file) for file in files]
        for each in pieces:
            assert b"".join([chunk async for chunk in store.read_pieces(tenant_id, each)]) == content
        async with store._database.operator(write=True) as session:
            await session.execute(update(FileUploadRow).values(expires_at=utc_now() - timedelta(days=2)))
        await store.sweep(timedelta(0))
        assert len(_stored(site)) == sum(len(each) for each in pieces)
        return len(files)
    finally:
        await store.close()


def _stored(site: tuple[Path, str]) -> list[str]:
    fs, root = url_to_fs(site[1], use_listings_cache=False)
    return list(fs.find(root))


async def _outcome(site: tuple[Path, str], tenant_id: str, upload: Any) -> int:
    """Return how many versions a crash left. They are complete, publishing still works, and unused
    files are reclaimed.
    """
    store = await _open(site)
    try:
        async with store.tenant(tenant_id) as scope:
            adapters = (await scope.adapters.list()).items
            published = len(await scope.adapters.versions("support")) if adapters else 0
            digests = {(await scope.adapters.route(adapter.name)).pick().digest for adapter in adapters}
        for digest in digests:
            await _check_bytes(store, tenant_id, digest, upload)
        async with store.tenant(tenant_id, write=True) as scope:
            again = await scope.publisher.publish("support", upload.config, upload.file(), probe=no_probe)
        # the version number of the killed publication is used up
        assert again.version in (published + 1, published + 2)
        await _check_bytes(store, tenant_id, again.digest, upload)
        await store.sweep(timedelta(0), timedelta(0))
        assert len(_stored(site)) == 2
        return published
    finally:
        await store.close()


async def _check_bytes(store: Store, tenant_id: str, digest: str, upload: Any) -> None:
    stored = await store.open_adapter(tenant_id, digest)
    assert stored.config_json == upload.config
    assert b"".join([chunk async for chunk in stored.tensors]) == upload.tensors
