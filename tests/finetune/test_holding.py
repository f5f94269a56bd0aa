"""A job that is held no longer interrupts whoever works on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loragate.adapter_store.job import JobRequest, JobStatus
from loragate.adapter_store.schema import upgrade
from loragate.adapter_store.store import Store
from loragate.finetune.holding import Holding

REQUEST = JobRequest("supervised", "base", "file-1", None, {}, None, 7, {})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await upgrade(url)
    opened = await Store.open(url, str(tmp_path / "blobs"), b"a secret key for the tests, 32+ bytes")
    yield opened
    await opened.close()


async def held_job(store: Store) -> Holding:
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
    async with store.tenant(tenant.id, write=True) as scope:
        await scope.jobs.create(REQUEST)
    async with store.admin(write=True) as admin:
        claim = await admin.job_queue.claim("w1", JobStatus.VALIDATING, 1)
    assert claim is not None
    return Holding(store, claim, "w1")


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
