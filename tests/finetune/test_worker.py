"""A worker on a real store: from a file and a job to an adapter in the registry, and every way in which that ends."""

import asyncio
import csv
import io
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from loragate.adapter_store.errors import AdapterInvalid
from loragate.adapter_store.file import FileFacts, Purpose
from loragate.adapter_store.job import Job, JobRequest, JobStatus
from loragate.adapter_store.probe import no_probe
from loragate.adapter_store.schema import upgrade
from loragate.adapter_store.store import Store
from loragate.adapter_store.tenant import Tenant
from loragate.engine.assembly import load
from loragate.engine.config import EngineConfig
from loragate.finetune.worker import Worker
from loragate.finetune.worker_config import WorkerConfig
from loragate.v1 import engine_pb2 as pb

from .runs import HIDDEN, make_base

SECRET_KEY = b"a secret key for the tests, 32+ bytes"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def manifest(base: Path) -> pb.Manifest:
    """As an engine of this base model says it."""
    config = EngineConfig(str(base), "unused", base.parent / "cache", threads=1, kv_cache_tokens=1024)
    return load(config).manifest


@dataclass
class World:
    store: Store
    tenant: Tenant
    manifest: pb.Manifest
    config: WorkerConfig

    async def file(self, *rows: Any) -> str:
        """A training file of these."""
        content = "\n".join(json.dumps(row) for row in rows).encode()
        async with self.store.tenant(self.tenant.id, write=True) as scope:
            facts = FileFacts("data.jsonl", Purpose.FINE_TUNE)
            return (await scope.files.create(facts, io.BytesIO(content), len(content))).id

    async def job(self, training_file: str, **hyperparameters: Any) -> Job:
        request = JobRequest(
            method="supervised",
            model=self.manifest.model_id,
            training_file=training_file,
            validation_file=None,
            hyperparameters={"n_epochs": 4, "batch_size": 4, "max_length": 128} | hyperparameters,
            suffix="poet",
            seed=7,
            metadata={},
        )
        async with self.store.tenant(self.tenant.id, write=True) as scope:
            return await scope.jobs.create(request)

    async def order(self, what: str, job: Job) -> None:
        async with self.store.tenant(self.tenant.id, write=True) as scope:
            await getattr(scope.jobs, what)(job.id)

    async def get(self, job: Job) -> Job:
        async with self.store.tenant(self.tenant.id) as scope:
            return await scope.jobs.get(job.id)

    async def messages(self, job: Job, type: str = "message") -> list[str]:
        """Oldest first."""
        async with self.store.tenant(self.tenant.id) as scope:
            page = await scope.jobs.events(job.id, limit=100)
        return [event.message for event in reversed(page.items) if event.type == type]

    async def until(self, job: Job, so: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(200):
            while not so(found := await self.get(job)):
                await asyncio.sleep(0.1)
        return found

    @asynccontextmanager
    async def working(self, name: str = "w1", probe: Any = no_probe) -> AsyncIterator[None]:
        worker = Worker(self.store, self.manifest, probe, replace(self.config, name=name), HIDDEN)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled(), running.exception()


@pytest.fixture
async def world(base: Path, manifest: pb.Manifest, tmp_path: Path) -> AsyncIterator[World]:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await upgrade(url)
    store = await Store.open(url, str(tmp_path / "blobs"), SECRET_KEY)
    await store.publish_manifest(manifest)
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("Acme & Co.")
    config = WorkerConfig("w1", base, tmp_path / "work", row_tokens=256, poll_seconds=0.05)
    yield World(store, tenant, manifest, config)
    await store.close()


def chats(count: int) -> list[Any]:
    replies = ("jumps over", "the lazy dog", "says no")
    return [
        {"messages": [{"role": "user", "content": f"fox {n}"}, {"role": "assistant", "content": replies[n % 3]}]}
        for n in range(count)
    ]


def ended(job: Job) -> bool:
    return job.status.ended


async def test_from_a_file_to_an_adapter(world: World) -> None:
    job = await world.job(await world.file(*chats(16)))
    async with world.working():
        done = await world.until(job, ended)
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    tail = job.id[-8:]
    assert done.fine_tuned_model == f"ft:{world.manifest.model_id}:acme-co:poet:{tail}"
    assert (done.step, done.steps) == (16, 16)
    assert done.trained_tokens
    async with world.store.tenant(world.tenant.id) as scope:
        adapter = await scope.adapters.get(f"poet-{tail}")
        version = await scope.adapters.version(f"poet-{tail}", 1)
        content = await scope.files.pieces(done.result_file or "")
    assert set(adapter.aliases) == {"default", "trained"}
    assert version.lineage.source == job.id
    assert (version.lineage.dataset_digest or "").startswith("sha256:")
    told = b"".join([chunk async for chunk in world.store.blobs.of(world.tenant.id).pieces.read(content)])
    rows = list(csv.DictReader(io.StringIO(told.decode())))
    assert [int(row["step"]) for row in rows] == list(range(1, 17))
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    assert len(await world.messages(job, "metrics")) == 16
    assert not list((world.config.workspace / "jobs").glob("*"))


async def test_a_bad_file_is_told_line_by_line_and_trains_nothing(world: World) -> None:
    good = chats(12)
    job = await world.job(await world.file(*good[:3], {"messages": []}, *good[3:], {"text": "x"}))
    async with world.working():
        done = await world.until(job, ended)
    assert done.status is JobStatus.FAILED
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("invalid_training_file", "training_file")
    assert "Line 4: " in done.error.message
    assert "Line 14: it has another format" in done.error.message
    assert done.started_at is None
    async with world.store.tenant(world.tenant.id) as scope:
        assert not (await scope.adapters.list()).items


async def test_a_file_that_was_deleted_meanwhile_is_said(world: World) -> None:
    file = await world.file(*chats(12))
    job = await world.job(file)
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.delete(file, tuple(Purpose))
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("file_not_found", "training_file")


async def test_an_adapter_that_the_engine_refuses_is_not_registered(world: World) -> None:
    async def refusing(*_: Any) -> None:
        raise AdapterInvalid("its logits are not finite")

    job = await world.job(await world.file(*chats(12)), n_epochs=1)
    async with world.working(probe=refusing):
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.message == "its logits are not finite"
    async with world.store.tenant(world.tenant.id) as scope:
        assert not (await scope.adapters.list()).items


async def test_paused_resumed_given_back_and_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.finetune.holding._RENEWALS", 100)  # orders are heard of three times a second
    job = await world.job(await world.file(*chats(16)), n_epochs=30)
    async with world.working():
        await world.until(job, lambda found: found.step >= 4)
        await world.order("pause", job)
        paused = await world.until(job, lambda found: found.status is JobStatus.PAUSED)
        await world.order("resume", job)
        await world.until(job, lambda found: found.step > paused.step)
    assert (await world.get(job)).status is JobStatus.QUEUED  # the worker stopped, and gave it back
    async with world.working("w2"):
        await world.until(job, lambda found: found.status is JobStatus.RUNNING)
        await world.order("cancel", job)
        done = await world.until(job, ended)
    assert done.status is JobStatus.CANCELLED
    assert not list((world.config.workspace / "jobs").glob("*"))


async def test_training_that_dies_is_tried_again_from_its_checkpoint_and_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loragate.adapter_store.job_queue.MOST_ATTEMPTS", 1)
    job = await world.job(await world.file(*chats(16)), n_epochs=50)
    async with world.working():
        await world.until(job, lambda found: found.step >= 1)
        children = psutil.Process().children()
        (trainer,) = [child for child in children if "loragate.finetune.training.child" in child.cmdline()]
        os.kill(trainer.pid, signal.SIGKILL)
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.code == "trainer_died"
    assert "The training process ended by itself (signal 9)." in await world.messages(job)
