"""A job is leased while a worker works on it; a lost lease interrupts the work."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from migrated_sqlite import migrated_sqlite
from sqlalchemy import select

from loragate.adapter_store.jobs.job import JobRequest, JobStatus
from loragate.adapter_store.jobs.queue import JobClaim
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.jobs import JobRow
from loragate.finetune.run.lease import WorkerLease, held_lease

REQUEST = JobRequest("supervised", "base", "file-1", None, {}, None, 7, {})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    url = await migrated_sqlite(tmp_path)
    opened = await Store.open(url, str(tmp_path / "blobs"), b"a secret key for the tests, 32+ bytes")
    yield opened
    await opened.close()


async def claimed(store: Store) -> JobClaim:
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    async with store.tenant(tenant.id, write=True) as scope:
        await scope.jobs.create(REQUEST)
    async with store.admin(write=True) as admin:
        claim = await admin.job_queue.claim("w1", JobStatus.VALIDATING, 1)
    assert claim is not None
    return claim


async def held_job(store: Store) -> WorkerLease:
    return WorkerLease(store, await claimed(store), "w1")


async def test_when_its_tenant_is_deleted(store: Store) -> None:
    held = await held_job(store)
    await held.renew()
    assert not held.interrupted.is_set()
    async with store.admin(write=True) as admin:
        await admin.tenants.delete(held.tenant_id)
    await held.renew()
    assert held.lost
    assert held.interrupted.is_set()


async def test_when_it_is_another_workers(store: Store) -> None:
    held = await held_job(store)
    held.worker = "w2"
    await held.renew()
    assert (held.lost, held.interrupted.is_set()) == (True, True)


async def test_its_lease_is_renewed_while_a_worker_works_on_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.finetune.run.lease._RENEWALS", 1000)
    claim = await claimed(store)
    before = await held_until(store, claim)
    async with held_lease(store, claim, "w1"), asyncio.timeout(100):
        while await held_until(store, claim) <= before:
            await asyncio.sleep(0.01)
    stopped = await held_until(store, claim)
    await asyncio.sleep(0.2)
    assert await held_until(store, claim) == stopped


async def held_until(store: Store, claim: JobClaim) -> datetime:
    async with store._database.operator() as session:
        found: datetime = (await session.scalars(select(JobRow.held_until).where(JobRow.id == claim.job.id))).one()
    return found
