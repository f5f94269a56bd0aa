"""A job whose trainer hangs, holding the interpreter: what its tenant and a restart of the worker do to it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.adapter_store.tables.jobs import JobRow
from loragate.finetune.config import TrainerPatience
from tests.finetune.trainers import trainers
from tests.finetune.worker_world import World, chats, ended

HANGING = str(Path(__file__).parents[1] / "hanging_trainer.py")
SHORT = TrainerPatience(stop_seconds=0.3, silence_seconds=60, yield_seconds=0.3)


@pytest.fixture(autouse=True)
def hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.finetune.run.trainer_process._COMMAND", (sys.executable, HANGING, "holding"))


@pytest.fixture
def prompt_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.finetune.run.lease._RENEWALS", 100)  # orders are heard of three times a second


async def until_it_hangs(world: World, job: Job) -> None:
    await world.until(job, lambda found: found.status is JobStatus.RUNNING)
    async with asyncio.timeout(60):
        while not trainers(HANGING):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


async def attempts(world: World, job: Job) -> int:
    async with world.store._database.operator() as session:
        found: int = (await session.scalars(select(JobRow.attempts).where(JobRow.id == job.id))).one()
    return found


@pytest.mark.usefixtures("prompt_orders")
@pytest.mark.parametrize(("order", "becomes"), [("cancel", JobStatus.CANCELLED), ("pause", JobStatus.PAUSED)])
async def test_an_order_ends_it(world: World, order: str, becomes: JobStatus) -> None:
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=SHORT):
        await until_it_hangs(world, job)
        await world.order(order, job)
        async with asyncio.timeout(30):
            await world.until(job, lambda found: found.status is becomes)
        assert not trainers(HANGING)
    assert await attempts(world, job) == (1 if order == "pause" else 0)


@pytest.mark.usefixtures("prompt_orders")
async def test_the_deletion_of_its_tenant_ends_it(world: World) -> None:
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=SHORT):
        await until_it_hangs(world, job)
        async with world.store.admin(write=True) as admin:
            await admin.tenants.delete(world.tenant.id)
        async with asyncio.timeout(30):
            while trainers(HANGING):
                await asyncio.sleep(0.05)


async def test_its_silence_ends_it_and_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.adapter_store.jobs.queue.MAX_ATTEMPTS", 1)
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=TrainerPatience(silence_seconds=2)):
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.code == "trainer_died"
    assert "The training process did not respond for 2 seconds and was killed." in await world.messages(job)


async def test_its_death_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.adapter_store.jobs.queue.MAX_ATTEMPTS", 2)
    job = await world.job(await world.file(*chats(12)))
    killed: set[int] = set()
    async with world.working(), asyncio.timeout(60):
        while len(killed) < 2:
            for trainer in trainers(HANGING):
                if trainer.pid not in killed:
                    os.kill(trainer.pid, signal.SIGKILL)
                    killed.add(trainer.pid)
            await asyncio.sleep(0.05)
        done = await world.until(job, ended)
    assert done.error is not None
    assert done.error.code == "trainer_died"
    died = [message for message in await world.messages(job) if message == "The training process died (signal 9)."]
    assert len(died) == 2


async def test_a_restart_of_the_worker_counts_the_attempt(world: World) -> None:
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=SHORT):
        await until_it_hangs(world, job)
    assert (await world.get(job)).status is JobStatus.QUEUED
    assert await attempts(world, job) == 1


@pytest.mark.parametrize(("order", "becomes"), [("cancel", JobStatus.CANCELLED), ("pause", JobStatus.PAUSED)])
async def test_a_restart_of_the_worker_keeps_an_order_that_it_had_not_seen(
    world: World, order: str, becomes: JobStatus
) -> None:
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=SHORT):
        await until_it_hangs(world, job)
        await world.order(order, job)
    assert (await world.get(job)).status is becomes


async def test_a_worker_that_was_killed_leaves_the_order_to_the_next(
    world: World, monkeypatch: Any, tmp_path: Path
) -> None:
    job = await world.job(await world.file(*chats(12)))
    async with world.working(patience=SHORT):
        await until_it_hangs(world, job)
        monkeypatch.setattr("loragate.adapter_store.jobs.lease.JobLease.requeue", lost)  # as if it were killed now
        await world.order("cancel", job)
    async with world.store.admin(write=True) as admin:
        await admin.job_queue.release_all("w1")
    started = tmp_path / "started"
    monkeypatch.setattr("loragate.finetune.run.trainer_process._COMMAND", ("touch", str(started)))
    async with world.working("w2", patience=SHORT):
        done = await world.until(job, ended)
    assert done.status is JobStatus.CANCELLED
    assert not started.exists(), "it was trained once more"


async def lost(*_: Any, **__: Any) -> None:
    """Stand in for what a killed worker does not do."""


async def test_it_makes_room_for_another_tenant(world: World) -> None:
    first = await world.job(await world.file(*chats(12)))
    async with world.store.admin(write=True) as admin:
        other = await admin.tenants.create("Other")
    mine, theirs = world.tenant, other
    async with world.working(patience=SHORT, quantum_seconds=0.2, poll_seconds=0.05):
        await until_it_hangs(world, first)
        world.tenant = theirs
        second = await world.job(await world.file(*chats(12)))
        async with asyncio.timeout(60):
            await world.until(second, lambda found: found.status is JobStatus.RUNNING)
    world.tenant = mine
    assert any("jobs of other tenants go first" in message for message in await world.messages(first))
    assert await attempts(world, first) >= 1
