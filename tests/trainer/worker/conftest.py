from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from migrated_sqlite import migrated_sqlite

from loragate.adapter_store.store import Store
from loragate.engine.config import EngineConfig
from loragate.engine.startup.build import load
from loragate.trainer.trainer import Trainer
from loragate.v1 import engine_pb2
from tests.finetune.runs import make_base
from tests.trainer.worker.training_world import World, config

SECRET_KEY = b"a secret key for the tests, 32+ bytes"


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def engine_config(base: Path) -> EngineConfig:
    return EngineConfig(str(base), "unused", base.parent / "cache", threads=1, kv_cache_tokens=1024)


@pytest.fixture(scope="session")
def manifest(engine_config: EngineConfig) -> engine_pb2.Manifest:
    return load(engine_config).manifest


@pytest.fixture(scope="session")
def trainer(base: Path, engine_config: EngineConfig) -> Trainer:
    return Trainer.load(base, engine_config, max_step_tokens=64)


@pytest.fixture
async def world(trainer: Trainer, manifest: engine_pb2.Manifest, tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(await migrated_sqlite(tmp_path), str(tmp_path / "blobs"), SECRET_KEY)
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        tenants = [(await admin.tenants.create(name)).id for name in ("first", "second")]
    made = World(store, trainer, config(tmp_path), manifest, tenants)
    yield made
    made.forget()
    await store.close()
