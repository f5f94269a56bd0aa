"""Batches on both databases: which is next, who holds it, and that each result is there once, with its usage."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from loragate.adapter_store.batches.batch import BatchRequest, BatchStatus, LineResult
from loragate.adapter_store.batches.queue import BatchClaim
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.tables.batches import BatchLineRow, BatchRow
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow
from loragate.adapter_store.usage.record import UsageRecord, new_usage_id

DAY = timedelta(days=1)
REQUEST = BatchRequest("key1", "/v1/chat/completions", "file-1", "24h", DAY, {"team": "a"})


async def create(world: Any, tenant: Any = None) -> str:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return str((await scope.batches.create(REQUEST)).id)


async def claim(world: Any, worker: str = "w1") -> BatchClaim | None:
    async with world.store.admin(write=True) as admin:
        found: BatchClaim | None = await admin.batch_queue.claim(worker)
        return found


async def held(world: Any, method: str, *arguments: Any, tenant: Any = None, **named: Any) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.batch_lease, method)(*arguments, **named)


async def expire(world: Any) -> None:
    """Let half a minute pass."""
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(BatchRow).values(held_until=database_now()))


def result(world: Any, number: int, *, failed: bool = False, tokens: int = 5) -> LineResult:
    usage = UsageRecord(
        id=new_usage_id(),
        request_id=f"req_{number}",
        tenant_id=world.acme.id,
        key_id="key1",
        endpoint="batch.chat",
        base_model="base",
        started_at=datetime.now(UTC),
        prompt_tokens=10,
        completion_tokens=tokens,
    )
    return LineResult(number, failed, f'{{"line": {number}}}', usage)


async def counted(world: Any) -> tuple[int, int]:
    """Return the ledger's rows, and the tokens of its sums of a day."""
    async with world.store._database.operator() as session:
        rows = (await session.scalars(select(UsageRecordRow))).all()
        sums = (await session.scalars(select(UsageSumRow).where(UsageSumRow.width == "day"))).all()
        return len(rows), sum(each.completion_tokens for each in sums)


async def test_a_result_and_its_usage_are_there_once(world: Any) -> None:
    batch = await create(world)
    assert (await claim(world)) is not None
    await held(world, "start", batch, "w1", 3)
    first = [result(world, 1), result(world, 2, failed=True)]
    await held(world, "add", batch, "w1", first)
    again = [replace(first[1], usage=replace(first[1].usage or result(world, 2).usage, id=new_usage_id()))]
    await held(world, "add", batch, "w1", [*again, result(world, 3)])
    assert await counted(world) == (3, 15)
    async with world.store.tenant(world.acme.id) as scope:
        found = await scope.batches.get(batch)
        good = await scope.batch_lease.results(batch, failed=False, after=0, limit=10)
        assert await scope.batch_lease.finished(batch, range(10)) == {1, 2, 3}
    assert (found.completed, found.failed, found.tokens.completion) == (2, 1, 15)
    assert [each.number for each in good] == [1, 3]


async def test_without_the_lease_nothing_is_added(world: Any) -> None:
    batch = await create(world)
    await claim(world)
    await held(world, "start", batch, "w1", 3)
    await expire(world)
    with pytest.raises(LeaseLost):
        await held(world, "add", batch, "w1", [result(world, 1)])
    second = await claim(world, "w2")
    assert second is not None
    assert (second.batch.id, second.batch.status) == (batch, BatchStatus.IN_PROGRESS)
    for method, arguments in (
        ("renew", ()),
        ("add", ([result(world, 1)],)),
        ("finalize", (BatchStatus.COMPLETED,)),
        ("remove_results", ()),
        ("end", (BatchStatus.COMPLETED,)),
        ("release", ()),
    ):
        with pytest.raises(LeaseLost):
            await held(world, method, batch, "w1", *arguments)
    assert await counted(world) == (0, 0)
    async with world.store._database.operator() as session:
        assert not (await session.scalars(select(BatchLineRow))).all()


async def test_tenants_take_turns(world: Any) -> None:
    batches = [await create(world) for _ in range(3)] + [await create(world, world.other)]
    claims = [await claim(world, f"w{n}") for n in range(4)]
    order = [each.batch.id for each in claims if each is not None]
    assert order == [batches[0], batches[3], batches[1], batches[2]]
    assert await claim(world) is None
    for number, batch in ((0, batches[0]), (2, batches[1])):
        await held(world, "release", batch, f"w{number}")
    async with world.store.admin() as admin:
        assert await admin.batch_queue.others_wait(world.other.id)
        assert not await admin.batch_queue.others_wait(world.acme.id)
    again = await claim(world, "w9")
    assert again is not None
    assert again.batch.id == batches[0], "it was served longest ago"


async def test_many_workers_claim_each_batch_once(world: Any) -> None:
    batches = {await create(world, tenant) for tenant in (world.acme, world.other) for _ in range(3)}
    claims = await asyncio.gather(*(claim(world, f"w{n}") for n in range(8)))
    found = [each.batch.id for each in claims if each is not None]
    assert sorted(found) == sorted(batches)


async def test_waiting_and_cancelling(world: Any) -> None:
    batch = await create(world)
    await claim(world)
    await held(world, "start", batch, "w1", 1)
    await held(world, "wait", batch, "w1", "No tokens are left.", DAY)
    assert await claim(world) is None
    async with world.store.tenant(world.acme.id, write=True) as scope:
        waiting = await scope.batches.get(batch)
        assert waiting.waits_for == "No tokens are left."
        await scope.batches.cancel(batch)
    claimed = await claim(world, "w2")
    assert claimed is not None
    assert (claimed.batch.status, claimed.batch.waits_for) == (BatchStatus.CANCELLING, None)
    finalized = await held(world, "finalize", batch, "w2", BatchStatus.COMPLETED)
    assert finalized.ending is BatchStatus.CANCELLED
    await held(world, "end", batch, "w2", finalized.ending)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        assert (await scope.batches.cancel(batch)).status is BatchStatus.CANCELLED


async def test_a_batch_that_has_ended_is_not_claimed_nor_cancelled(world: Any) -> None:
    batch = await create(world)
    await claim(world)
    await held(world, "end", batch, "w1", BatchStatus.FAILED)
    assert await claim(world) is None
    async with world.store.tenant(world.acme.id, write=True) as scope:
        with pytest.raises(Conflict):
            await scope.batches.cancel(batch)
    async with world.store.tenant(world.other.id) as scope:
        with pytest.raises(NotFound):
            await scope.batches.get(batch)


async def test_a_deleted_tenants_batches_are_not_claimed(world: Any) -> None:
    await create(world)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.acme.id)
    assert await claim(world) is None


async def test_the_tokens_of_today(world: Any) -> None:
    batch = await create(world)
    await claim(world)
    await held(world, "start", batch, "w1", 2)
    assert await held(world, "tokens_left") is None
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(world.acme.id, limits={"batch_tokens_per_day": 40})
    await held(world, "add", batch, "w1", [result(world, 1)])
    assert await held(world, "tokens_left") == 25
    assert await held(world, "tokens_left", tenant=world.other) is None


async def test_results_are_removed_in_portions(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.adapter_store.batches.lease._REMOVED", 2)
    batch = await create(world)
    await claim(world)
    await held(world, "start", batch, "w1", 3)
    await held(world, "add", batch, "w1", [result(world, number) for number in (1, 2, 3)])
    assert await held(world, "remove_results", batch, "w1")
    assert not await held(world, "remove_results", batch, "w1")
    async with world.store.tenant(world.acme.id) as scope:
        assert await scope.batch_lease.finished(batch, (1, 2, 3)) == set()
