"""Workers on several machines, each with its own workspace: one resumes another's run after any
failure of it, and writes of a worker that hung are rejected.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from sqlalchemy import update

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.tables.jobs import JobRow
from loragate.finetune.data.formats import Method
from loragate.finetune.run.checkpoint_backup import CheckpointBackup, restore_run
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.published_checkpoints import CheckpointSpacing, PublishedCheckpoints
from loragate.finetune.run.publishing import Publisher, open_publisher
from loragate.finetune.training.adapter import new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.checkpoint import save_adapter
from loragate.finetune.training.checkpoints.folders import last_checkpoint_step
from loragate.finetune.worker.workspace_cleanup import clean_up
from tests.finetune.runs import RECIPES
from tests.finetune.worker_world import World, chats, ended

DIGEST = "sha256:" + "d" * 64


async def leased(world: World) -> WorkerLease:
    """A job in training, by `w1`."""
    job = await world.job("file-1")
    for stage in (JobStatus.VALIDATING, JobStatus.QUEUED):
        async with world.store.admin(write=True) as admin:
            claim = await admin.job_queue.claim("w1", stage, 1)
        assert claim is not None
        if stage is JobStatus.VALIDATING:
            async with world.store.tenant(world.tenant.id, write=True) as scope:
                await scope.job_lease.validated(job.id, "w1", {}, 1)
    return WorkerLease(world.store, claim, "w1")


async def expire_lease(world: World, job: Job) -> None:
    """Make the lease look as if it had not been renewed for half a minute."""
    async with world.store._database.operator(write=True) as session:
        past = await session.scalar(database_now().select()) - timedelta(seconds=1)
        await session.execute(update(JobRow).where(JobRow.id == job.id).values(held_until=past))


def with_checkpoint(folder: Path, step: int, best: int | None = None) -> None:
    """Leave a checkpoint as training does, on a machine that has the job's folder elsewhere."""
    place = folder / "run" / f"checkpoint-{step}"
    place.mkdir(parents=True)
    for name in ("adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "run.json"):
        (place / name).write_text(f"{name} of {step}")
    where = None if best is None else str(folder / "run" / f"checkpoint-{best}")
    (place / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": where}))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f"{step}\n")


async def test_a_run_is_restored_with_its_best_checkpoint_and_replaces_an_older_local_state(
    world: World, tmp_path: Path
) -> None:
    lease, now = await leased(world), [0.0]
    here, there = tmp_path / "here", tmp_path / "there"
    backup = CheckpointBackup(world.store, lease, here, 60.0, lambda: now[0])
    with_checkpoint(here, 4)
    backup.on_checkpoint()
    await restore_run(world.store, world.tenant.id, lease.job.id, there)
    assert last_checkpoint_step(there / "run") == 0, "it is not yet time"
    with_checkpoint(here, 12, best=4)
    now[0] = 61.0
    backup.on_checkpoint()
    await backup.finish()
    assert not (here / "kept").exists()

    await restore_run(world.store, world.tenant.id, lease.job.id, there)
    brought = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    whole = {f"run/checkpoint-12/{path.name}" for path in (here / "run" / "checkpoint-12").iterdir()}
    adapter = {f"run/checkpoint-4/adapter_{end}" for end in ("config.json", "model.safetensors")}
    assert brought == whole | adapter | {"metrics.jsonl"}
    state = json.loads((there / "run" / "checkpoint-12" / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(there / "run" / "checkpoint-4")
    assert (there / "metrics.jsonl").read_text() == "4\n12\n"

    shutil.rmtree(there / "run" / "checkpoint-4")
    await restore_run(world.store, world.tenant.id, lease.job.id, there)
    assert not (there / "run" / "checkpoint-4").exists(), "it has come as far"
    with_checkpoint(here, 20)
    await backup.finish()
    await restore_run(world.store, world.tenant.id, lease.job.id, there)
    assert [path.name for path in (there / "run").iterdir()] == ["checkpoint-20"]


async def test_a_checkpoint_that_the_run_has_already_removed_is_not_published_and_ends_nothing(
    world: World, tmp_path: Path
) -> None:
    """A worker that waited for its database learns of it when there are newer ones."""
    place: Any = None
    checkpoints = PublishedCheckpoints(await leased(world), place, place, tmp_path / "p", str, CheckpointSpacing(16, 4))
    checkpoints.add(tmp_path / "run" / "checkpoint-4", 4)
    await checkpoints.finish()
    await checkpoints.cancel()
    assert checkpoints._last == 0, "one behind it may take its place"


async def test_a_missing_or_unwritable_snapshot_blocks_nothing(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await leased(world)
    backup = CheckpointBackup(world.store, lease, tmp_path, 0.0)
    with_checkpoint(tmp_path, 4)
    (tmp_path / "metrics.jsonl").unlink()
    backup.on_checkpoint()
    await backup.finish()
    assert "the backup of checkpoint-4 failed" in caplog.text
    (tmp_path / "metrics.jsonl").write_text("4\n")
    await backup.finish()
    for piece in (tmp_path / "blobs" / world.tenant.id / "pieces").iterdir():
        piece.unlink()
    await restore_run(world.store, world.tenant.id, lease.job.id, tmp_path / "there")
    assert last_checkpoint_step(tmp_path / "there" / "run") == 0
    assert "the backup of its run is missing" in caplog.text


async def test_without_disk_space_waiting_runs_with_snapshots_are_removed_and_tokens_before_them(
    world: World, tmp_path: Path
) -> None:
    lease = await leased(world)
    job = lease.job
    workspace = world.config.workspace
    folder, board = workspace / "jobs" / job.id, workspace / "tensorboard" / job.id
    board.mkdir(parents=True)
    (board / "events").write_bytes(b"x" * 100)
    with_checkpoint(folder, 4)
    backup = CheckpointBackup(world.store, lease, folder, 0.0)

    async def cleaned_up(most: int, min_free: int = 0) -> tuple[bool, bool]:
        await clean_up(world.worker(max_workspace_bytes=most, min_free_bytes=min_free)._context)
        return folder.exists(), board.exists()

    os.utime(board / "events", (1, 1))
    assert await cleaned_up(1) == (True, True), "it is in training"
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.job_lease.pause(job.id, "w1")
    assert await cleaned_up(1 << 20) == (True, True)
    assert await cleaned_up(150) == (True, False), "the least recently used is removed first"
    assert await cleaned_up(1) == (True, False), "no other machine has this state"
    await world.order("resume", job)
    async with world.store.admin(write=True) as admin:
        assert await admin.job_queue.claim("w1", JobStatus.QUEUED, 1)
    await backup.finish()
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.job_lease.requeue(job.id, "w1")
    assert await cleaned_up(1 << 20, min_free=1 << 60) == (False, False), "the rest of the disk belongs to others"
    assert not list((workspace / "jobs").iterdir())
    await restore_run(world.store, world.tenant.id, job.id, folder)
    assert last_checkpoint_step(folder / "run") == 4


async def test_a_worker_that_lost_its_job_publishes_and_withdraws_nothing(world: World, tmp_path: Path) -> None:
    lease = await leased(world)
    adapter = tmp_path / "adapter"
    torch.manual_seed(0)
    save_adapter(
        new_adapter(load_base(world.config.model, "none", torch.device("cpu")), RECIPES[Method.SUPERVISED]), adapter
    )
    mine = await open_publisher(world.store, world.manifest.model_id, world.tenant.id, lease.job, no_probe, "w1")
    theirs = await open_publisher(world.store, world.manifest.model_id, world.tenant.id, lease.job, no_probe, "w2")
    await mine.checkpoint(adapter, 4, DIGEST, {})
    await expire_lease(world, lease.job)
    async with world.store.admin(write=True) as admin:
        assert await admin.job_queue.claim("w2", JobStatus.QUEUED, 1)
    before = await state(world, lease.job)
    await changes_nothing(mine, adapter)
    assert await state(world, lease.job) == before

    await theirs.result(adapter, DIGEST)
    async with world.store.tenant(world.tenant.id) as scope:
        assert (await scope.adapters.get(mine.name.adapter)).aliases["trained"] == (AliasTarget(2, 1),)


async def changes_nothing(publisher: Publisher, adapter: Path) -> None:
    for late in (
        publisher.result(adapter, DIGEST),
        publisher.checkpoint(adapter, 8, DIGEST, {}),
        publisher.withdraw(),
        publisher.results_file(b"step\n"),
    ):
        with pytest.raises(LeaseLost):
            await late


async def state(world: World, job: Job) -> list[Any]:
    """Return everything visible of a job and its results."""
    async with world.store.tenant(world.tenant.id) as scope:
        found = [await scope.jobs.get(job.id), await world.events(job)]
        found += [(await scope.jobs.checkpoints(job.id)).items, (await scope.files.list(tuple(Purpose))).items]
        for adapter in (await scope.adapters.list()).items:
            found += [adapter, (await scope.adapters.versions(adapter.name)).items]
        return [*found, await scope.run_snapshots.latest(job.id)]


@pytest.mark.long  # two runs; in test_worker one is moved to another machine
async def test_a_paused_job_resumes_on_another_machine(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loragate.finetune.run.lease._RENEWALS", 100)
    file = await world.file(*chats(16))
    job = await world.job(file, valid=file, n_epochs=30)
    async with world.working():
        await world.until(job, lambda found: found.step >= 4)
        await world.order("pause", job)
        paused = await world.until(job, lambda found: found.status is JobStatus.PAUSED)
    shutil.rmtree(world.config.workspace)
    await world.order("resume", job)
    async with world.working("w2", workspace=tmp_path / "elsewhere"):
        done = await world.until(job, ended)
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    steps = [message.split("/")[0] for message in await world.messages(job, "metrics") if "training loss" in message]
    assert 4 <= paused.step < 120
    assert steps == [f"Step {step}" for step in range(1, 121)], "no step is made or reported twice"


@pytest.mark.long
async def test_a_hanging_worker_is_replaced_and_its_later_writes_are_rejected(world: World, tmp_path: Path) -> None:
    job = await world.job(await world.file(*chats(16)), n_epochs=50)
    async with hanging_worker(world, tmp_path) as hanging:
        await world.until(job, lambda found: found.step >= 8)
        await hang(world, job, hanging)
        trainers = psutil.Process(hanging.pid).children()
        async with world.working("w2", workspace=tmp_path / "elsewhere"):
            done = await world.until(job, ended)
        assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
        before = await state(world, job)
        os.kill(hanging.pid, signal.SIGCONT)
        assert hanging.stderr is not None
        async with asyncio.timeout(100):
            while b"a job was taken by another worker" not in (line := await hanging.stderr.readline()):
                assert line, "it ended"
        assert psutil.wait_procs(trainers, timeout=100)[1] == []
        next_one = await world.until(await world.job("file-unknown"), ended)
        assert next_one.error is not None, "it works on"
    after = await state(world, job)
    assert after == before


@asynccontextmanager
async def hanging_worker(world: World, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    (folder / "manifest").write_bytes(world.manifest.SerializeToString())
    places = (folder / "manifest", world.config.model, folder / "hanging")
    script = Path(__file__).parents[1] / "hanging_worker.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), f"sqlite:///{folder / 'store.db'}", str(folder / "blobs"), *map(str, places),
        stderr=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "support")},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def hang(world: World, job: Job, process: asyncio.subprocess.Process) -> None:
    """Suspend it at a moment at which it holds no lock: SQLite's would keep all others from writing."""
    async with asyncio.timeout(200):
        while True:
            os.kill(process.pid, signal.SIGSTOP)
            try:
                return await expire_lease(world, job)
            except Unavailable:
                os.kill(process.pid, signal.SIGCONT)
                await asyncio.sleep(0.05)
