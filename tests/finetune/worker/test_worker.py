"""A worker on a real store: from a file and a job to a registered adapter, and every way in which that ends."""

import asyncio
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from loragate.adapter_store.adapters.adapter import Adapter
from loragate.adapter_store.errors import AdapterInvalid
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import Job, JobCheckpoint, JobStart, JobStatus
from loragate.adapter_store.usage.query import UsageSums
from loragate.finetune.data.token_cache import CachedFile, TokenCache
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.worker.workspace_cleanup import clean_up
from tests.finetune.worker_world import World, chats, ended, the_curve


async def test_from_a_file_to_an_adapter(world: World) -> None:
    """The job is metered and priced."""
    await check_from_a_file_to_an_adapter(world)


@pytest.mark.long
async def test_from_a_file_to_an_adapter_and_to_a_job_that_starts_from_it(world: World) -> None:
    await check_from_a_file_to_an_adapter(world, further=True)


async def check_from_a_file_to_an_adapter(world: World, *, further: bool = False) -> None:
    """Train an adapter and check all that is recorded of it; with `further`, train another that starts from it."""
    file = await world.file(*chats(16))
    job = await world.job(file)
    second = None
    async with world.working(training_prices={None: 7}):
        done = await world.until(job, ended)
        assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
        tail = job.id[-8:]
        assert done.fine_tuned_model == f"ft:{world.manifest.model_id}:acme-co:poet:{tail}"
        assert (done.step, done.steps) == (16, 16)
        assert done.trained_tokens
        async with world.store.tenant(world.tenant.id) as scope:
            adapter = await scope.adapters.get(f"poet-{tail}")
            version = await scope.adapters.version(f"poet-{tail}", adapter.latest_version)
            checkpoints = (await scope.jobs.checkpoints(job.id)).items
        used = await world.usage()
        if further:
            start = JobStart(adapter.id, adapter.name, version.version, version.digest)
            second = await world.until(await world.job(file, start, n_epochs=1), ended)
        await world.nothing_left()
    await check_checkpoints(adapter, checkpoints, done)
    check_usage(used, done)
    config = json.loads((await world.store.open_adapter(world.tenant.id, version.digest)).config_json)
    assert config["base_model_name_or_path"] == world.manifest.model_id, "the path is not disclosed"
    assert version.lineage.source == job.id
    assert version.lineage.evaluation["step"] == 16
    assert (version.lineage.dataset_digest or "").startswith("sha256:")
    curve = await the_curve(world, done)
    assert list(curve) == list(range(1, 17))
    assert curve[16] < curve[1]
    assert len(await world.messages(job, "metrics")) == 16
    if second is None:
        return

    assert (second.status, second.error) == (JobStatus.SUCCEEDED, None)
    assert (await the_curve(world, second))[1] < (curve[1] + curve[16]) / 2, "it restarted"
    async with world.store.tenant(world.tenant.id) as scope:
        continued = await scope.adapters.version(f"poet-{second.id[-8:]}", 1)
    assert continued.lineage.notes == f"Continues poet-{tail}:4 ({version.digest})."
    assert continued.rank == version.rank
    check_usage(await world.usage(), done, second)
    assert used.training_ms < (await world.usage()).training_ms


def check_usage(sums: UsageSums, *jobs: Job) -> None:
    tokens = sum(job.trained_tokens or 0 for job in jobs)
    assert (sums.training_tokens, sums.amount) == (tokens, 7 * tokens)
    assert sums.training_ms > 0


async def check_checkpoints(adapter: Adapter, checkpoints: Sequence[JobCheckpoint], done: Job) -> None:
    """Check that they are evenly spread over the run, have different names, and differ from the result."""
    assert {alias: [target.version for target in targets] for alias, targets in adapter.aliases.items()} == {
        "ckpt-step-4": [1], "ckpt-step-8": [2], "ckpt-step-12": [3], "default": [4], "trained": [4],
    }  # fmt: skip
    assert [(each.step, each.model) for each in checkpoints] == [
        (step, f"{done.fine_tuned_model}:ckpt-step-{step}") for step in (12, 8, 4)
    ]
    assert all(each.metrics["train_loss"] > 0 for each in checkpoints)


@pytest.mark.parametrize(
    ("field", "asked"), [("lora_rank", 4), ("use_dora", True), ("target_modules", ["q_proj"])], ids=str
)
async def test_options_that_contradict_the_base_adapter_are_rejected(world: World, field: str, asked: Any) -> None:
    digest = "sha256:" + "0" * 64
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["k_proj", "q_proj"]}
    await world.store.blobs.of(world.tenant.id).put(digest, json.dumps(config).encode(), io.BytesIO(b""))
    job = await world.job(await world.file(*chats(12)), JobStart("ad_1", "old", 3, digest), **{field: asked})
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.error.code, done.error.param) == (
        "invalid_hyperparameters", f"method.supervised.hyperparameters.{field}",
    )  # fmt: skip
    assert f"fixes `{field}` at" in done.error.message


async def test_weights_that_are_saved_quantized_are_not_quantized_again(world: World) -> None:
    world.quantization = "mxfp4"
    job = await world.job(await world.file(*chats(12)), quantization="nf4")
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.param == "method.supervised.hyperparameters.quantization"
    assert "already quantized (mxfp4)" in done.error.message


async def test_an_unexpected_error_ends_one_job_and_not_the_worker(world: World) -> None:
    strange = await world.job(await world.file(*chats(12)), lora_rank="a number")
    async with world.working():
        done = await world.until(strange, ended)
        next_one = await world.until(await world.job("file-unknown"), ended)
    assert done.error is not None
    assert done.error.code == "internal_error"
    assert next_one.error is not None
    assert next_one.error.code == "file_not_found"


async def test_a_deleted_adapter_cannot_be_continued(world: World) -> None:
    start = JobStart("ad_1", "old", 3, "sha256:" + "1" * 64)
    job = await world.job(await world.file(*chats(12)), start)
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("model_not_found", "model")


async def test_an_invalid_file_is_reported_by_line_and_trains_nothing(world: World) -> None:
    good = chats(12)
    job = await world.job(await world.file(*good[:3], {"messages": []}, *good[3:], {"text": "x"}))
    async with world.working():
        done = await world.until(job, ended)
    assert done.status is JobStatus.FAILED
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("invalid_training_file", "training_file")
    assert "Line 4: " in done.error.message
    assert "Line 14: its format differs" in done.error.message
    assert done.started_at is None
    async with world.store.tenant(world.tenant.id) as scope:
        assert not (await scope.adapters.list()).items


async def test_a_file_that_was_deleted_meanwhile_is_reported(world: World) -> None:
    file = await world.file(*chats(12))
    job = await world.job(file)
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.delete(file, tuple(Purpose))
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("file_not_found", "training_file")


@pytest.mark.long
async def test_an_adapter_that_the_engine_rejects_is_not_registered_nor_its_checkpoints(world: World) -> None:
    tried = 0

    async def rejecting(*_: Any) -> None:
        nonlocal tried
        tried += 1
        if tried > 2:
            raise AdapterInvalid("its logits are not finite")

    job = await world.job(await world.file(*chats(12)), n_epochs=1)
    async with world.working(probe=rejecting):
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.message == "its logits are not finite"
    async with world.store.tenant(world.tenant.id) as scope:
        assert not (await scope.adapters.list()).items


async def test_leftovers_of_jobs_that_ended_elsewhere_are_removed(world: World) -> None:
    file = await world.file(*chats(12))
    cancelled, waiting = await world.job(file), await world.job(file)
    folders = {job.id: world.config.workspace / "jobs" / job.id for job in (cancelled, waiting)}
    for folder in (*folders.values(), world.config.workspace / "jobs" / "ftjob-unknown"):
        (folder / "run").mkdir(parents=True)
    await world.order("cancel", cancelled)
    place = world.worker()._context
    await clean_up(place)
    assert list((world.config.workspace / "jobs").iterdir()) == [folders[waiting.id]]


async def test_tokens_of_deleted_files_are_removed(world: World) -> None:
    """And of deleted tenants, whose files go with them; those of others stay."""
    files = [await world.file(*chats(12)) for _ in range(2)]
    context = world.worker()._context
    for file in files:
        await context.preparation.prepare(world.tenant.id, await world.job(file))
    folder = world.config.workspace / "tokens"
    for tokens in folder.glob("*/*/*"):
        os.utime(tokens, (1, 1))
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        await scope.files.delete(files[0], tuple(Purpose))
    await clean_up(context)
    assert [place.name for place in folder.glob("*/*")] == [files[1]]
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.tenant.id)
    await clean_up(context)
    assert not list(folder.iterdir())


@pytest.mark.long
async def test_early_stopping_trains_on_less_and_returns_the_best(world: World) -> None:
    other = [{"messages": [each["messages"][0], {"role": "assistant", "content": "ZZZZZZZZ"}]} for each in chats(4)]
    fast = {"learning_rate_multiplier": 40.0, "lr_scheduler": "constant", "early_stopping_patience": 1}
    job = await world.job(await world.file(*chats(16)), valid=await world.file(*other), **fast)
    async with world.working():
        done = await world.until(job, ended)
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    judged = {
        event.data["step"]: event.data["valid_loss"] for event in await world.events(job) if "valid_loss" in event.data
    }
    assert (done.step, done.steps) == (max(judged), 16)
    assert done.step < 16, "it never got worse"
    tokens = max(TokenFile(each).facts["tokens"] for each in (world.config.workspace / "tokens").glob("*/*/*"))
    assert done.trained_tokens == 4 * tokens * done.step // 16
    async with world.store.tenant(world.tenant.id) as scope:
        adapter = await scope.adapters.get(f"poet-{job.id[-8:]}")
        version = await scope.adapters.version(adapter.name, adapter.latest_version)
    assert version.lineage.evaluation["step"] == min(judged, key=lambda step: judged[step])


@pytest.mark.parametrize(("order", "becomes"), [("cancel", JobStatus.CANCELLED), ("pause", JobStatus.PAUSED)])
async def test_a_cancellation_interrupts_the_reading_of_a_file(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str, becomes: JobStatus
) -> None:
    monkeypatch.setattr("loragate.finetune.run.lease._RENEWALS", 100)
    begun, left = threading.Event(), threading.Event()

    def endless(_: TokenCache, source: CachedFile, file: BinaryIO, *__: Any) -> None:
        begun.set()
        try:
            while True:
                file.seek(0)
                left.wait(0.01)
        finally:
            left.wait(1.0)  # it cannot stop at once
            left.set()

    monkeypatch.setattr(TokenCache, "tokens_of", endless)
    job = await world.job(await world.file(*chats(12)))
    async with world.working():
        assert await asyncio.to_thread(begun.wait, 100)
        await world.order(order, job)
        await world.until(job, lambda found: found.status is becomes)
        assert left.is_set(), "no process is left that still writes"


@pytest.mark.long
@pytest.mark.parametrize("requeued", [False, True])
async def test_a_job_is_paused_resumed_and_finished_elsewhere(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeued: bool
) -> None:
    """It is `requeued` when its worker stops while it trains."""
    monkeypatch.setattr("loragate.finetune.run.lease._RENEWALS", 100)  # requests are read three times a second
    job = await world.job(await world.file(*chats(16)), n_epochs=30)
    async with world.working():
        await world.until(job, lambda found: found.step >= 4)
        await world.order("pause", job)
        paused = await world.until(job, lambda found: found.status is JobStatus.PAUSED)
        if requeued:
            await world.order("resume", job)
            await world.until(job, lambda found: found.step > paused.step)
    if not requeued:
        await world.order("resume", job)
    given_back = await world.get(job)
    assert given_back.status is JobStatus.QUEUED
    async with world.working("w2", workspace=tmp_path / "elsewhere"):
        await world.until(job, lambda found: found.step > given_back.step)
        await world.order("cancel", job)
        done = await world.until(job, ended)
    assert done.status is JobStatus.CANCELLED
    reported = Counter(message.split("/")[0] for message in await world.messages(job, "metrics"))
    assert {reported[f"Step {step}"] for step in range(1, paused.step + 1)} == {1}, "it restarted"
    assert not list((tmp_path / "elsewhere" / "jobs").glob("*"))
    await clean_up(world.worker()._context)
    assert not list((world.config.workspace / "jobs").glob("*"))


@pytest.mark.long
async def test_a_job_that_made_room_continues_from_its_checkpoint(world: World) -> None:
    first = await world.job(await world.file(*chats(16)), n_epochs=12)
    mine = world.tenant
    async with world.store.admin(write=True) as admin:
        theirs = await admin.tenants.create("Other")
    async with world.working(quantum_seconds=0.1):
        await world.until(first, lambda found: found.step >= 1)
        world.tenant = theirs
        second = await world.job(await world.file(*chats(12)), n_epochs=1)
        await world.until(second, lambda found: found.status is JobStatus.RUNNING)
    world.tenant = mine
    aside = await world.get(first)
    assert aside.status is JobStatus.QUEUED
    assert 1 <= aside.step < 48
    assert any("jobs of other tenants go first" in message for message in await world.messages(first))
    async with world.working():
        assert (await world.until(first, ended)).status is JobStatus.SUCCEEDED
        world.tenant = theirs
        assert (await world.until(second, ended)).status is JobStatus.SUCCEEDED
    world.tenant = mine
    reported = Counter(message.split("/")[0] for message in await world.messages(first, "metrics"))
    assert {reported[f"Step {step}"] for step in range(1, 49)} == {1}, "it started again"
