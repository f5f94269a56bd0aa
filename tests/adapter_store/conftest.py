"""The same tests on SQLite with blobs on disk, and on Postgres with blobs in S3.

Both servers belong to the tests: Postgres where its binaries are installed, S3 by moto.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pytest
from fsspec.core import url_to_fs
from migrated_sqlite import migrated_sqlite
from private_postgres import PostgresServer, private_postgres
from s3_server import S3Server, s3_server
from safetensors.numpy import save

from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.tenants.tenant import Tenant
from loragate.v1 import engine_pb2

SECRET_KEY = b"a secret key for the tests, 32+ bytes"
_WIDTH = 8


class HeldProbe:
    """A probe that waits until the test sets its result."""

    def __init__(self) -> None:
        self.asked, self.verdict = asyncio.Event(), asyncio.Event()

    async def __call__(self, tenant_id: str, staged: Any) -> None:
        self.asked.set()
        await self.verdict.wait()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


# Statements that the databases execute differently: search, locks, sums, triggers. Their tests run on both in the fast
# set; the others run on Postgres, and with blobs in S3, with the long ones.
_FOLDERS = {"database", "auth", "usage", "fleet"}
_FILES = {
    "test_search.py",
    "test_batches.py",
    "test_jobs.py",
    "test_probe.py",
    "test_audit.py",
    "test_idempotency.py",
}


@pytest.hookimpl(tryfirst=True)  # before items are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(item, "callspec", None)
        on_postgres = parameters is not None and parameters.params.get("backend") == "postgres"
        if on_postgres and item.path.parent.name not in _FOLDERS and item.path.name not in _FILES:
            item.add_marker(pytest.mark.long)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def empty_database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty database, as a user would write it."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    await server.run("DROP DATABASE IF EXISTS store WITH (FORCE)")
    await server.run("CREATE DATABASE store")
    yield server.url("store")


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> PostgresServer:
    """A server with a migrated database `template` to copy, and a copy, `reused`, to restore."""

    async def migrate() -> None:
        await postgres_server.run("CREATE DATABASE template")
        await upgrade(postgres_server.url("template"))
        await postgres_server.run("CREATE DATABASE reused TEMPLATE template")
        await postgres_server.run(_KEEP_ROWS, "reused")

    asyncio.run(migrate())
    return postgres_server


# Restoring the rows of a migrated database takes milliseconds, copying the database a tenth of a second of the kernel's
# time.
_FOR_EACH_TABLE = """
DO $$ DECLARE table_name text; BEGIN
    FOR table_name IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('{}', table_name);
    END LOOP;
END $$;
"""
_KEEP_ROWS = "CREATE SCHEMA kept;" + _FOR_EACH_TABLE.format("CREATE TABLE kept.%1$I AS TABLE public.%1$I")
_RESTORE_ROWS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'reused' AND pid <> pg_backend_pid();"
    "SET session_replication_role = replica;"  # neither foreign keys nor the trigger that protects the audit log
    + _FOR_EACH_TABLE.format("DELETE FROM public.%1$I; INSERT INTO public.%1$I TABLE kept.%1$I")
)


@pytest.fixture
def migrated(backend: str, request: pytest.FixtureRequest) -> PostgresServer | None:
    """The server with a migrated database; None for SQLite."""
    return request.getfixturevalue("migrated_postgres") if backend == "postgres" else None


@pytest.fixture
async def database_url(migrated: PostgresServer | None, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated database. A test that changes its tables is marked `migrates`."""
    if migrated is None:
        return await migrated_sqlite(tmp_path)
    if request.node.get_closest_marker("migrates") is None:
        await migrated.run(_RESTORE_ROWS, "reused")
        return migrated.url("reused")
    await migrated.run("DROP DATABASE IF EXISTS store WITH (FORCE)")
    await migrated.run("CREATE DATABASE store TEMPLATE template")
    return migrated.url("store")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def blob_url_in_s3(s3: S3Server) -> str:
    """The URL of an empty prefix in S3."""
    return s3.new_url()


@pytest.fixture
def blob_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place for blobs."""
    if backend == "sqlite":
        return str(tmp_path / "blobs")
    url: str = request.getfixturevalue("blob_url_in_s3")
    return url


@pytest.fixture
async def s3_store(blob_url_in_s3: str, tmp_path: Path) -> AsyncIterator[Store]:
    """A store for tests of S3; its database is SQLite."""
    opened = await Store.open(await migrated_sqlite(tmp_path), blob_url_in_s3, SECRET_KEY)
    try:
        yield opened
    finally:
        await opened.close()


@dataclass(frozen=True)
class BlobFiles:
    """The files in a blob store, on any file system; names are relative to its root."""

    url: str

    def names(self, end: str = "") -> list[str]:
        """Return the files of tenants; the journal of revocations, which no sweep removes, is not among them."""
        fs, root = url_to_fs(self.url, use_listings_cache=False)
        names = (name.removeprefix(f"{root}/") for name in fs.find(root) if name.endswith(end))
        return sorted(name for name in names if not name.startswith("journal/"))

    def put(self, name: str, content: bytes = b"x") -> None:
        fs, root = url_to_fs(self.url, use_listings_cache=False)
        fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{root}/{name}", content)


@pytest.fixture
def blob_files(blob_url: str) -> BlobFiles:
    return BlobFiles(blob_url)


@pytest.fixture
async def store(database_url: str, blob_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(database_url, blob_url, SECRET_KEY)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def manifest() -> engine_pb2.Manifest:
    """A base model of two layers, each with two 8×8 linears."""
    return engine_pb2.Manifest(
        model_id="base",
        base_digest="sha256:" + "b" * 64,
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=2,
        modules=[
            engine_pb2.TargetModule(
                name=f"model.layers.{layer}.self_attn.{name}",
                kind=engine_pb2.MODULE_KIND_LINEAR,
                in_features=_WIDTH,
                out_features=_WIDTH,
                servable=True,
            )
            for layer in range(2)
            for name in ("q_proj", "v_proj")
        ],
        max_lora_rank=64,
    )


@dataclass
class Upload:
    """The two files of an adapter; publishing it again sends the same bytes."""

    config: bytes
    tensors: bytes

    def file(self) -> BinaryIO:
        return io.BytesIO(self.tensors)


@pytest.fixture
def make_upload() -> Callable[..., Upload]:
    def make(seed: int = 0, rank: int = 4, **config: Any) -> Upload:
        random = np.random.default_rng(seed)
        tensors = {}
        for layer in range(2):
            for name in ("q_proj", "v_proj"):
                module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
                tensors[f"{module}.lora_A.weight"] = random.standard_normal((rank, _WIDTH)).astype(np.float32)
                tensors[f"{module}.lora_B.weight"] = random.standard_normal((_WIDTH, rank)).astype(np.float32)
        settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
        return Upload(orjson.dumps({**settings, **config}), save(tensors))

    return make


_SAID = {"alias", "tags", "description", "lineage", "probe"}


@dataclass(frozen=True)
class World:
    """A store with a base model and two tenants."""

    store: Store
    acme: Tenant
    other: Tenant
    make_upload: Callable[..., Upload] = field(repr=False)

    async def publish(self, name: str, *, tenant: Tenant | None = None, **said_and_made: Any) -> Any:
        """Publish an upload: parameters of `Publisher.publish` are passed to it, the others make the upload."""
        said = {key: said_and_made.pop(key) for key in _SAID & said_and_made.keys()}
        made = self.make_upload(**said_and_made)
        return await self.send(name, made.config, made.file(), tenant=tenant, **said)

    async def send(self, name: str, *files: Any, tenant: Tenant | None = None, **said: Any) -> Any:
        """Publish exactly these bytes."""
        async with self.store.tenant((tenant or self.acme).id, write=True) as scope:
            return await scope.publisher.publish(name, *files, **{"probe": no_probe, **said})

    @asynccontextmanager
    async def adapters(self, tenant: Tenant | None = None, *, write: bool = False) -> AsyncIterator[Any]:
        async with self.store.tenant((tenant or self.acme).id, write=write) as scope:
            yield scope.adapters


@pytest.fixture
async def world(store: Store, manifest: engine_pb2.Manifest, make_upload: Callable[..., Upload]) -> World:
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        acme = await admin.tenants.create("acme")
        other = await admin.tenants.create("other")
    return World(store, acme, other, make_upload)
