"""Nothing that a deleted tenant wrote stays, in any table; its bills and the audit log do."""

import io
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Table, func, select, text

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.jobs.job import JobRequest
from loragate.adapter_store.sweep_holds import hold_sweep
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.tenants import erasure
from tests.adapter_store.responses.test_responses import new

NOW = timedelta(0)
REQUEST = JobRequest("supervised", "base", "file-1", None, {}, "acme-suffix", 7, {"project": "secret"})
LEFT = {"audit_log"}


async def _fill(world: Any, tenant: Any) -> None:
    await world.publish("support", tenant=tenant, tags=["private"], description="A confidential note")
    async with world.store.admin(write=True) as admin:
        created = await admin.keys.create(tenant.id, name="laptop")
        await admin.keys.rotate(created.key.id)
    async with world.store.tenant(tenant.id, write=True) as scope:
        await scope.files.create(FileFacts("people.jsonl", Purpose.FINE_TUNE), io.BytesIO(b"abc"), 3)
        await scope.jobs.create(REQUEST)
        await scope.imports.create("hf://acme/poet@" + "0" * 40, "poet", None, resumable=True)
        await scope.responses.add(new(1))
        await scope.conversations.create({}, [{"id": "msg_1"}], None)


async def _delete(world: Any, tenant: Any) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(tenant.id)


def _owned() -> list[Table]:
    return [table for table in Base.metadata.sorted_tables if "tenant_id" in table.columns]


async def _tables_with_rows(world: Any, tenant: Any) -> set[str]:
    found = set()
    async with world.store._database.operator() as session:
        for table in _owned():
            query = select(func.count()).select_from(table).where(table.c.tenant_id == tenant.id)
            if await session.scalar(query):
                found.add(table.name)
    return found


async def test_nothing_of_a_deleted_tenant_stays_but_bills_and_the_audit_log(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_ROWS", 1)
    for tenant in (world.acme, world.other):
        await _fill(world, tenant)
    before = await _tables_with_rows(world, world.acme)
    assert {"adapters", "adapter_tags", "api_keys", "files", "fine_tuning_jobs", "adapter_imports"} <= before
    assert {"stored_responses", "conversations", "conversation_items"} <= before
    await _delete(world, world.acme)
    await world.store.sweep(NOW, NOW)
    await world.store.sweep(NOW, NOW)
    assert await _tables_with_rows(world, world.acme) == LEFT
    assert await _tables_with_rows(world, world.other) == before
    async with world.store.admin() as admin:
        names = await admin.tenants.names([world.acme.id, world.other.id])
        actions = [event.action for event in await admin.audit.list(tenant_id=world.acme.id)]
    assert names == {world.acme.id: world.acme.id, world.other.id: "other"}
    assert actions.count("tenant.erase") == 1


async def test_a_tenant_is_erased_only_after_the_retention(world: Any) -> None:
    await _fill(world, world.acme)
    await _delete(world, world.acme)
    await world.store.sweep(NOW, timedelta(days=7))
    assert {"adapters", "api_keys", "fine_tuning_jobs"} <= await _tables_with_rows(world, world.acme)


async def test_nothing_is_erased_while_a_backup_runs(world: Any) -> None:
    await _delete(world, world.acme)
    async with hold_sweep(world.store._database, "backup-1"):
        await world.store.sweep(NOW, NOW)
    async with world.store.admin() as admin:
        assert await admin.tenants.names([world.acme.id]) == {world.acme.id: "acme"}


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_the_file_of_sqlite_shrinks(world: Any) -> None:
    database: Database = world.store._database

    async def pages() -> int:
        async with database.operator() as session:
            return int(await session.scalar(text("PRAGMA page_count")) or 0)

    at_first = await pages()
    async with database.operator(write=True) as session:
        await session.execute(text("CREATE TABLE big (content BLOB)"))
        for _ in range(100):
            await session.execute(text("INSERT INTO big VALUES (randomblob(100000))"))
    async with database.operator(write=True) as session:
        await session.execute(text("DROP TABLE big"))
    assert await pages() > at_first + 2000
    await world.store.sweep(NOW, NOW)
    assert await pages() <= at_first
