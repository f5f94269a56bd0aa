"""Snapshots from which a run can resume on another machine, on both databases and with blobs on disk and in S3."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, Failure
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import JobRequest, JobStatus
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.jobs.run_snapshots import RunSnapshot
from loragate.adapter_store.tables.jobs import JobRow

REQUEST = JobRequest("supervised", "base", "file-1", None, {}, None, 7, {})
NOW = timedelta(0)


class Run:
    """A job in training by `w1`, and its checkpoint."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.job_id = ""

    async def begin(self) -> None:
        async with self.world.store.tenant(self.world.acme.id, write=True) as scope:
            self.job_id = (await scope.jobs.create(REQUEST)).id
        async with self.world.store.admin(write=True) as admin:
            await admin.job_queue.claim("w1", JobStatus.VALIDATING, 1)

    async def store_snapshot(self, step: int, worker: str = "w1") -> None:
        name = f"run/checkpoint-{step}/run.json"
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(f"step {step}")
        (self.folder / "metrics.jsonl").write_text(f"{step}\n")
        files = {each: self.folder / each for each in (name, "metrics.jsonl")}
        async with self.world.store.tenant(self.world.acme.id, write=True) as scope:
            await scope.run_snapshots.save(self.job_id, worker, step, files)

    async def stored(self, tenant: Any = None) -> RunSnapshot | None:
        async with self.world.store.tenant((tenant or self.world.acme).id) as scope:
            found: RunSnapshot | None = await scope.run_snapshots.latest(self.job_id)
        return found

    async def content(self) -> dict[str, bytes]:
        pieces = self.world.store.blobs.of(self.world.acme.id).pieces
        kept = await self.stored()
        assert kept is not None
        return {name: b"".join([each async for each in pieces.read([piece])]) for name, piece in kept.files.items()}

    async def as_worker(self, method: str, *arguments: Any) -> None:
        async with self.world.store.tenant(self.world.acme.id, write=True) as scope:
            await getattr(scope.job_lease, method)(self.job_id, "w1", *arguments)

    async def expire_lease(self) -> None:
        """Make the lease expire."""
        async with self.world.store._database.operator(write=True) as session:
            past = await session.scalar(database_now().select()) - timedelta(seconds=1)
            await session.execute(update(JobRow).where(JobRow.id == self.job_id).values(held_until=past))


@pytest.fixture
async def run(world: Any, tmp_path: Path) -> Run:
    made = Run(world, tmp_path / "job")
    await made.begin()
    return made


async def test_the_newest_is_kept_and_the_previous_one_removed(run: Run, blob_files: Any) -> None:
    assert await run.stored() is None
    for step in (3, 12):
        await run.store_snapshot(step)
    assert await run.content() == {"run/checkpoint-12/run.json": b"step 12", "metrics.jsonl": b"12\n"}
    found = await run.stored()
    assert found is not None
    assert found.step == 12
    assert await run.stored(run.world.other) is None, "it is its tenant's"
    assert len(blob_files.names()) == 2
    await run.world.store.sweep(NOW, NOW)
    assert len(blob_files.names()) == 2
    assert len(await run.content()) == 2


async def test_a_worker_that_lost_the_job_stores_nothing(run: Run, blob_files: Any) -> None:
    await run.store_snapshot(3)
    with pytest.raises(LeaseLost):
        await run.store_snapshot(5, worker="w2")
    await run.expire_lease()
    with pytest.raises(LeaseLost):
        await run.store_snapshot(6)
    assert set(await run.content()) == {"run/checkpoint-3/run.json", "metrics.jsonl"}
    await run.world.store.sweep(NOW, NOW)
    assert len(blob_files.names()) == 2, "what came too late is removed"


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "cancelled while running", "tenant deleted"])
async def test_a_snapshot_is_deleted_with_its_job(run: Run, blob_files: Any, end: str) -> None:
    await run.store_snapshot(3)
    if end == "succeeded":
        await run.as_worker("succeed", "ft:m", None)
    elif end == "failed":
        await run.as_worker("fail", Failure("a", "b"))
    elif end == "cancelled":
        await run.as_worker("cancelled")
    elif end == "tenant deleted":
        async with run.world.store.admin(write=True) as admin:
            await admin.tenants.delete(run.world.acme.id)
    else:
        await run.expire_lease()
        async with run.world.store.tenant(run.world.acme.id, write=True) as scope:
            await scope.jobs.cancel(run.job_id)
    assert await run.stored() is None
    await run.world.store.sweep(NOW, NOW)
    assert blob_files.names() == []


@pytest.mark.parametrize("pause", ["pause", "requeue"])
async def test_a_snapshot_is_kept_while_the_job_waits(run: Run, pause: str) -> None:
    await run.store_snapshot(3)
    await run.as_worker(pause)
    await run.world.store.sweep(NOW, NOW)
    assert len(await run.content()) == 2


async def test_a_snapshot_is_no_api_file_and_counts_for_quotas(run: Run, blob_files: Any) -> None:
    store, tenant = run.world.store, run.world.acme.id
    await run.store_snapshot(3)
    async with store.tenant(tenant) as scope:
        assert not (await scope.files.list(tuple(Purpose))).items
    async with store.admin(write=True) as admin:
        await admin.tenants.update(tenant, limits={"max_storage_bytes": 12})
    async with store.tenant(tenant) as scope:
        assert (await scope.files.room()).left == 12 - len("step 3") - len("3\n")
    with pytest.raises(Conflict) as exceeded:
        await run.store_snapshot(5)
    assert exceeded.value.code == "quota_exceeded"
    assert len(blob_files.names()) == 2
    assert set(await run.content()) == {"run/checkpoint-3/run.json", "metrics.jsonl"}
    async with store.admin() as admin:
        acts = [event.action for event in await admin.audit.list(limit=100)]
    assert "file.create" not in acts
