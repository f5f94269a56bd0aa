"""The configuration, database and tenants that a test gateway needs before it starts."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from migrated_sqlite import migrated_sqlite, prepared_folder
from tokenizers import Tokenizer

from loragate.adapter_store.store import Store
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from tests.gateway import tiny_model
from tests.gateway.running_gateway import ADMIN_KEY
from tests.gateway.stub_engine import StubEngine


@asynccontextmanager
async def stub_engine(tokenizer: Tokenizer, **of_manifest: Any) -> AsyncIterator[StubEngine]:
    # pytest's own folders are too long for the path of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="lg-") as folder:
        stub = StubEngine(f"unix:{folder}/engine.sock", tiny_model.manifest(tokenizer, **of_manifest), tokenizer)
        await stub.start()
        try:
            yield stub
        finally:
            await stub.kill()


_SECRET_KEY = b"a secret key for the tests"
_tenants: tuple[str, str, str] | None = None  # of the database that has some


async def new_config(folder: Path, engine: StubEngine) -> GatewayConfig:
    """Return a configuration with a new database in `folder`, copied, because creating one takes longer than most
    tests.
    """
    empty = prepared_folder() / "empty.db"
    if not empty.exists():
        url = await migrated_sqlite(prepared_folder())
        # Opened once, so that it has the facts that the first start writes: all copies make and accept the same keys.
        await (await Store.open(url, (folder / "blobs").as_uri(), _SECRET_KEY)).close()
        (prepared_folder() / "store.db").rename(empty)
    shutil.copy(empty, folder / "loragate.db")
    return _config(folder, engine.target)


def _config(folder: Path, engine_target: str) -> GatewayConfig:
    return GatewayConfig(
        database_url=f"sqlite+aiosqlite:///{folder}/loragate.db",
        blob_url=(folder / "blobs").as_uri(),
        secret_key=_SECRET_KEY,
        engine_target=engine_target,
        data_dir=folder,
        grpc_listen="127.0.0.1:0",
        imports=ImportConfig(hub="http://127.0.0.1:9", hosts=()),  # no server listens there
        heartbeat_timeout=30.0,  # the fake engine shares this process, and with it every pause
    )


async def new_admin_key(config: GatewayConfig) -> None:
    """Return the admin key of the tests, for a store without tenants."""
    store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    try:
        await store.set_admin_key(ADMIN_KEY)
    finally:
        await store.close()


async def new_tenants(config: GatewayConfig) -> tuple[str, str, str]:
    """Return the first tenant's id, its key, and another tenant's key."""
    global _tenants
    if not _is_empty(config):
        return await _add_tenants(config)
    with_tenants = prepared_folder() / "tenants.db"
    if _tenants is None:
        _tenants = await _add_tenants(config)
        shutil.copy(config.data_dir / "loragate.db", with_tenants)
    shutil.copy(with_tenants, config.data_dir / "loragate.db")
    return _tenants


def _is_empty(config: GatewayConfig) -> bool:
    """Return whether its database is the copy that `new_config` made, without changes."""
    file, empty = config.data_dir / "loragate.db", prepared_folder() / "empty.db"
    ours = config.database_url == f"sqlite+aiosqlite:///{file}" and config.secret_key == _SECRET_KEY
    return ours and file.read_bytes() == empty.read_bytes()


async def _add_tenants(config: GatewayConfig) -> tuple[str, str, str]:
    await new_admin_key(config)
    store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    try:
        async with store.admin(write=True) as admin:
            first, second = await admin.tenants.create("first"), await admin.tenants.create("second")
            keys = [(await admin.keys.create(tenant.id)).secret for tenant in (first, second)]
    finally:
        await store.close()
    return first.id, keys[0], keys[1]
