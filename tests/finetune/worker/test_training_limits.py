"""Limits on training: a job that may not be trained, one that runs into a limit, and what stays of it."""

import pytest

from loragate.adapter_store.jobs.job import JobStatus
from loragate.adapter_store.usage.query import UsageSums
from loragate.finetune.worker.workspace_cleanup import clean_up
from tests.finetune.worker_world import World, chats, ended


async def limit(world: World, **limits: int | None) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(world.tenant.id, limits=limits)


async def test_a_job_on_more_tokens_than_allowed_is_not_trained(world: World) -> None:
    await limit(world, max_job_training_tokens=100)
    job = await world.job(await world.file(*chats(16)))
    async with world.working():
        done = await world.until(job, ended)
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("limit_exceeded", "training_file")
    assert "max_job_training_tokens" in done.error.message
    assert done.started_at is None
    assert await world.usage() == UsageSums()


@pytest.mark.long
async def test_a_job_that_runs_into_a_limit_keeps_its_last_checkpoint(world: World) -> None:
    job = await world.job(await world.file(*chats(16)), n_epochs=50)
    async with world.working(metering_seconds=0.1):
        await world.until(job, lambda found: found.step >= 2)
        await limit(world, training_tokens_per_day=1)
        done = await world.until(job, ended)
        await world.nothing_left()
    assert done.error is not None
    assert (done.status, done.error.code) == (JobStatus.FAILED, "limit_exceeded")
    assert "training_tokens_per_day" in done.error.message
    async with world.store.tenant(world.tenant.id) as scope:
        (last, *_) = (await scope.jobs.checkpoints(job.id)).items
        adapter = await scope.adapters.get(f"poet-{job.id[-8:]}")
        target = adapter.aliases[f"ckpt-step-{last.step}"][0]
        await scope.adapters.version(adapter.name, target.version)
    assert last.step == done.step
    assert last.model is not None
    (world.config.workspace / "jobs" / job.id).mkdir(parents=True)  # as on another machine
    await clean_up(world.worker()._context)
    async with world.store.tenant(world.tenant.id) as scope:
        assert (await scope.adapters.get(adapter.name)).aliases == adapter.aliases
