"""Tokens and seconds of training: in the ledger once, with their price, and bounded by the tenant's limits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.tables.usage import UsageRecordRow
from loragate.adapter_store.usage.query import Grouping, UsageQuery, UsageSums
from loragate.adapter_store.usage.service_quality import ServiceQuery
from loragate.adapter_store.usage.training import TrainingUsage
from tests.adapter_store.jobs.test_jobs import REQUEST, as_tenant, as_worker, claimed, limited, queued

PRICE = 20


async def running(world: Any) -> str:
    job = await queued(world)
    assert await claimed(world) is not None
    return job


async def metered(world: Any, job: str, tokens: int, seconds: int) -> str | None:
    used = TrainingUsage(tokens, seconds * 1000)
    found: str | None = await as_worker(world, "meter", job, "w1", used, base_model="tiny/base", price=PRICE)
    return found


async def used(world: Any, *group_by: Grouping) -> list[tuple[Any, UsageSums]]:
    now = datetime.now(UTC)
    query = UsageQuery(now - timedelta(days=1), now + timedelta(days=1), frozenset(group_by))
    async with world.store.tenant(world.acme.id) as scope:
        return [(tuple(row.keys.values()), row.sums) for row in (await scope.usage.rows(query)).items]


async def test_tokens_count_once_and_time_always(world: Any) -> None:
    job = await running(world)
    await metered(world, job, 1000, 30)
    await metered(world, job, 1500, 10)
    await metered(world, job, 400, 5)  # resumed from a checkpoint before
    sums = UsageSums(training_tokens=1500, training_ms=45_000, amount=1500 * PRICE)
    assert await used(world, Grouping.ENDPOINT) == [(("fine_tuning",), sums)]
    assert [sum_ for _, sum_ in await used(world, Grouping.HOUR, Grouping.MODEL)] == [sums]
    async with world.store._database.operator() as session:
        rows = (await session.scalars(select(UsageRecordRow).order_by(UsageRecordRow.id))).all()
        assert [(row.request_id, row.training_tokens, row.duration_ms, row.amount) for row in rows] == [
            (job, 1000, 30_000, 1000 * PRICE),
            (job, 500, 10_000, 500 * PRICE),
            (job, 0, 5_000, 0),
        ]
    now = datetime.now(UTC)
    async with world.store.tenant(world.acme.id) as scope:
        service = await scope.usage.service(ServiceQuery(now - timedelta(hours=1), now + timedelta(hours=1)))
    assert service.requests == 0, "training is no request"


async def test_only_who_holds_the_job_meters_it(world: Any) -> None:
    job = await running(world)
    with pytest.raises(LeaseLost):
        await as_worker(world, "meter", job, "w2", TrainingUsage(1, 1), base_model="tiny/base", price=None)
    assert await used(world, Grouping.ENDPOINT) == []


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("max_job_training_tokens", 999),
        ("max_job_training_seconds", 30),
        ("training_tokens_per_day", 1000),
        ("training_tokens_per_month", 1000),
        ("training_seconds_per_day", 30),
        ("training_seconds_per_month", 30),
    ],
)
async def test_a_limit_that_is_used_up_is_named(world: Any, name: str, limit: int) -> None:
    job = await running(world)
    await limited(world, **{name: limit + 1})
    assert await metered(world, job, 1000, 30) is None
    await limited(world, **{name: limit})
    exceeded = await metered(world, job, 1000, 0)
    assert exceeded is not None
    assert f"{name}, {limit}," in exceeded
    if name.startswith("training"):
        with pytest.raises(Conflict, match=name) as refused:
            await as_tenant(world, "create", REQUEST)
        assert refused.value.code == "limit_exceeded"
        assert await as_tenant(world, "create", REQUEST, tenant=world.other)
    else:
        assert await as_tenant(world, "create", REQUEST), "the next job has a limit of its own"


async def test_a_job_that_needs_more_tokens_than_it_may_use(world: Any) -> None:
    await limited(world, max_job_training_tokens=1000)
    assert await as_worker(world, "exceeded_by", 1000) is None
    assert "this one needs 1001" in await as_worker(world, "exceeded_by", 1001)
