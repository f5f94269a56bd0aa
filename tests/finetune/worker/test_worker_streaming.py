"""Jobs on files that grow: a worker follows them, waits for lines, and reports invalid ones."""

import asyncio
import hashlib
import io
import json
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from sqlalchemy import update

from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.adapter_store.tables.files import FileRow
from loragate.adapter_store.timestamps import utc_now
from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.errors import JobRejected
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.attempt import Attempt
from loragate.finetune.run.lease import held_lease
from loragate.finetune.training.protocol.messages import Metrics
from tests.finetune.runs import run_training
from tests.finetune.trainers import trainers
from tests.finetune.worker_world import World, chats, ended, the_curve


def jsonl(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


async def open_file(world: World, *rows: Any) -> str:
    """Create an open file."""
    content = jsonl(*rows)
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        facts = FileFacts("data.jsonl", Purpose.FINE_TUNE, open=True)
        return (await scope.files.create(facts, io.BytesIO(content), len(content), "chat")).id


async def append(world: World, file_id: str, *rows: Any) -> None:
    content = jsonl(*rows)
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.append(file_id, tuple(Purpose), io.BytesIO(content), len(content), "chat")


async def close(world: World, file_id: str) -> None:
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.close(file_id, tuple(Purpose))


STREAMING: Any = {"n_epochs": 1, "streaming": True}


@pytest.mark.long
async def test_a_job_follows_a_growing_file_and_resumes_when_its_trainer_is_killed(
    world: World, tmp_path: Path
) -> None:
    """Its curve is exactly that of the whole file."""
    rows = chats(18)
    file = await open_file(world, *rows[:9])
    job = await world.job(file, **STREAMING)
    async with world.working():
        await world.until(job, lambda found: found.step == 2)
        os.kill(the_trainer().pid, signal.SIGKILL)
        await append(world, file, *rows[9:13])
        await world.until(job, lambda found: found.step == 3)
        await append(world, file, *rows[13:])
        await close(world, file)
        done = await world.until(job, ended)
        await world.nothing_left()
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    assert (done.step, done.steps) == (5, None)
    assert any(message.startswith("Waiting for lines") for message in await world.messages(job))
    tokens, recipe = await followed(world, file)
    assert done.trained_tokens == tokens.lengths.sum()
    reported: list[Metrics] = []
    base = world.config.model
    threads = torch.get_num_threads()
    torch.set_num_threads(world.config.trainer.threads)
    await asyncio.to_thread(
        run_training, base, StreamingTokenFile(tokens.folder), tmp_path / "run", recipe, reported.append, row_tokens=256
    )
    torch.set_num_threads(threads)
    assert await the_curve(world, done) == {each.step: each.train_loss for each in reported}
    async with world.store.tenant(world.tenant.id) as scope:
        version = await scope.adapters.version(f"poet-{job.id[-8:]}", 1)
    assert version.lineage.dataset_digest == f"sha256:{hashlib.sha256(jsonl(*rows)).hexdigest()}"


class Stoppable:
    """Replaces a trainer."""

    stopped = False

    def stop(self, within: float) -> None:
        self.stopped = True


async def test_a_job_waiting_for_lines_gives_its_place_to_jobs_that_have_some(world: World) -> None:
    world.config = replace(world.config, data_wait_seconds=0.05)
    job = await world.job(await open_file(world), **STREAMING)
    place, trainer = world.worker()._context, Stoppable()
    async with world.store.admin(write=True) as admin:
        claim = await admin.job_queue.claim("w1", JobStatus.VALIDATING, 1)
    assert claim is not None
    async with held_lease(world.store, claim, "w1") as held:
        attempt: Any = Attempt(place, held)
        concurrent = asyncio.create_task(attempt._control.stop_when_others_wait(trainer))
        attempt._control.on_waiting()
        await asyncio.wait([concurrent], timeout=0.3)
        assert not trainer.stopped, "no other job waits"
        await until_queued(world, await world.job(await world.file(*chats(12))))
        async with asyncio.timeout(100):
            await concurrent
        assert trainer.stopped
        await attempt._end_stopped(None)
    aside = await world.get(job)
    assert (aside.status, aside.started_at is None) == (JobStatus.QUEUED, False)
    assert any(message.startswith("Requeued while waiting") for message in await world.messages(job))


async def until_queued(world: World, job: Job) -> None:
    """Wait as if the job's file had been validated."""
    async with world.store.admin(write=True) as admin:
        assert await admin.job_queue.claim("w2", JobStatus.VALIDATING, 1)
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.job_lease.validated(job.id, "w2", {}, 1)


def the_trainer() -> psutil.Process:
    (trainer,) = trainers()
    return trainer


async def followed(world: World, file: str) -> tuple[TokenFile, Recipe]:
    """Follow a file without a trainer."""
    job, preparation = await world.job(file, **STREAMING), world.worker()._context.preparation
    recipe = (await preparation.prepare(world.tenant.id, job)).recipe

    async def log_event(_: str) -> None:
        pass

    following = preparation.stream(world.tenant.id, job, recipe, world.config.workspace, log_event)
    await following.run()
    return TokenFile(following.folder), recipe


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (chats(9), "9 examples; at least 10"),
        ([], "0 examples"),
        ([*chats(12), {"text": "x"}, {}], "Line 13: its format differs"),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}], "for the method 'dpo', not 'supervised'"),
    ],
)
async def test_lines_that_cannot_be_trained_on(world: World, rows: list[Any], says: str) -> None:
    file = await open_file(world, *rows)
    await close(world, file)
    with pytest.raises(JobRejected) as caught:
        await followed(world, file)
    assert (caught.value.failure.code, caught.value.failure.param) == ("invalid_training_file", "training_file")
    assert says in caught.value.failure.message


@pytest.mark.long
async def test_a_bad_line_ends_a_job_that_waits_for_good_ones(world: World) -> None:
    file = await open_file(world, *chats(2))
    job = await world.job(file, **STREAMING)
    async with world.working():
        await world.until(job, lambda found: found.status is JobStatus.RUNNING)
        await append(world, file, {"text": "x"})
        done = await world.until(job, ended)
        await world.nothing_left()
    assert done.error is not None
    assert (done.status, done.error.code) == (JobStatus.FAILED, "invalid_training_file")
    assert done.error.message.startswith("Line 3: its format differs")


async def test_a_missing_file_is_reported(world: World) -> None:
    file = await open_file(world, *chats(2))
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.delete(file, tuple(Purpose))
    with pytest.raises(JobRejected) as caught:
        await followed(world, file)
    assert (caught.value.failure.code, caught.value.failure.param) == ("file_not_found", "training_file")


async def test_a_file_without_appends_is_closed(world: World) -> None:
    file = await open_file(world, *chats(12))
    async with world.store._database.operator(write=True) as session:
        past = utc_now() - timedelta(seconds=1)
        await session.execute(update(FileRow).where(FileRow.id == file).values(open_until=past))
    await followed(world, file)
    async with world.store.tenant(world.tenant.id) as scope:
        assert (await scope.files.get(file, tuple(Purpose))).open_until is None
