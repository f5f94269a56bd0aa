from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from migrated_sqlite import migrated_sqlite

from loragate.adapter_store.store import Store
from loragate.engine.config import EngineConfig
from loragate.engine.startup.build import load
from loragate.finetune.config import WorkerConfig
from loragate.v1 import engine_pb2 as pb
from tests.finetune.runs import make_base
from tests.finetune.worker_world import SECRET_KEY, World


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def manifest(base: Path) -> pb.Manifest:
    """The manifest that an engine with this base model reports."""
    config = EngineConfig(str(base), "unused", base.parent / "cache", threads=1, kv_cache_tokens=1024)
    return load(config).manifest


@pytest.fixture
async def world(base: Path, manifest: pb.Manifest, tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(await migrated_sqlite(tmp_path), str(tmp_path / "blobs"), SECRET_KEY)
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("Acme & Co.")
    config = WorkerConfig("w1", base, tmp_path / "work", row_tokens=256, poll_seconds=0.05)
    yield World(store, tenant, manifest, config)
    await store.close()
