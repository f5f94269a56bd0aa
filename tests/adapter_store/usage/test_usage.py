"""The usage ledger: each record counts once, the sums always agree with it, and queries never read it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.scoped_statements import UnscopedStatement
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.tables.usage import UsageRecordRow, UsageSumRow
from loragate.adapter_store.usage.query import Grouping, UsageQuery, UsageSums
from loragate.adapter_store.usage.record import Outcome, UsageRecord, amount_text, new_usage_id

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EVER = (NOON - timedelta(days=400), NOON + timedelta(days=400))
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "computed_prompt_tokens", "generated_tokens")


def a_record(world: Any, **fields: Any) -> UsageRecord:
    plain: dict[str, Any] = {
        "id": new_usage_id(),
        "request_id": "req_1",
        "tenant_id": world.acme.id,
        "key_id": "key1",
        "endpoint": "chat",
        "base_model": "base",
        "started_at": NOON,
        "adapter": "support",
        "adapter_version": 1,
        "adapter_digest": "sha256:" + "d" * 64,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cached_tokens": 2,
        "ttft_ms": 12,
        "duration_ms": 340,
        "amount": 7,
        "computed_prompt_tokens": 9,
        "generated_tokens": 6,
    }
    return UsageRecord(**plain | fields)


async def settle(world: Any, *records: UsageRecord) -> int:
    async with world.store.admin(write=True) as admin:
        return int(await admin.settlement.settle(records))


async def rows_of(world: Any, *groupings: Grouping, limit: int = 100, **only: str) -> list[Any]:
    """Return all pages as the operator sees them."""
    query = UsageQuery(*EVER, frozenset(groupings), only)
    found: list[Any] = []
    while True:
        async with world.store.admin() as admin:
            page = await admin.usage.rows(query, after=found[-1].cursor if found else None, limit=limit)
        found.extend(page)
        if not page.has_more:
            return found


async def totals_of(world: Any, **only: str) -> UsageSums:
    async with world.store.admin() as admin:
        return UsageSums(**_plain(await admin.usage.totals(UsageQuery(*EVER, only=only))))


def _plain(sums: UsageSums) -> dict[str, int]:
    return {name: getattr(sums, name) for name in ("requests", *COUNTS, "amount")}


def sum_of(records: Sequence[UsageRecord]) -> UsageSums:
    counts = {name: sum(getattr(record, name) for record in records) for name in COUNTS}
    return UsageSums(len(records), **counts, amount=sum(record.amount or 0 for record in records))


async def balance(database_url: str) -> None:
    """Check that the ledger and its hourly and daily sums agree, key by key."""
    database = Database(database_url)
    ledger: dict[Any, list[int]] = {}
    sums: dict[Any, list[int]] = {}
    async with database.operator() as session:
        for row in await session.scalars(select(UsageRecordRow)):
            for width in ("hour", "day"):
                start = row.started_at.replace(minute=0, second=0, microsecond=0)
                start = start if width == "hour" else start.replace(hour=0)
                key = (row.tenant_id, width, start, row.key_id, row.endpoint, row.adapter, row.adapter_version)
                counts = (1, row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.amount or 0)
                ledger[key] = [a + b for a, b in zip(ledger.get(key, [0] * 5), counts, strict=True)]
        for each in await session.scalars(select(UsageSumRow)):
            adapter = (each.adapter or None, each.adapter_version or None)
            key = (each.tenant_id, each.width, each.start, each.key_id, each.endpoint, *adapter)
            counts = (each.requests, each.prompt_tokens, each.completion_tokens, each.cached_tokens, each.amount)
            sums[key] = list(counts)
    await database.close()
    assert sums == ledger


async def test_a_record_is_read_back_unchanged(world: Any, database_url: str) -> None:
    record = a_record(world, outcome=Outcome.DISCONNECTED)
    bare = a_record(world, adapter=None, adapter_version=None, adapter_digest=None, ttft_ms=None, amount=None)
    assert await settle(world, record, bare) == 2
    database = Database(database_url)
    async with database.operator() as session:
        rows = {row.id: row for row in await session.scalars(select(UsageRecordRow))}
        for sent in (record, bare):
            blob_files = rows[sent.id]
            assert all(getattr(blob_files, name) == getattr(sent, name) for name in UsageRecord.__dataclass_fields__)
    await database.close()


async def test_a_record_counts_once_however_often_it_is_settled(world: Any, database_url: str) -> None:
    first, second = a_record(world), a_record(world, completion_tokens=9)
    assert await settle(world, first, first) == 1
    assert await settle(world, first, second) == 1
    assert await settle(world, second) == 0
    assert await settle(world) == 0
    assert await totals_of(world) == sum_of([first, second])
    await balance(database_url)


async def test_several_writers_settle_the_same_records_concurrently(world: Any, database_url: str) -> None:
    records = [a_record(world, key_id=f"key{i % 3}", started_at=NOON + timedelta(hours=i % 30)) for i in range(60)]
    writers = [settle(world, *random.Random(seed).sample(records, 50)) for seed in range(6)]
    assert sum(await asyncio.gather(*writers)) <= len(records)
    await settle(world, *records)
    assert await totals_of(world) == sum_of(records)
    await balance(database_url)


async def test_a_failure_leaves_neither_rows_nor_sums(world: Any, database_url: str) -> None:
    async def settle_and_fail() -> None:
        async with world.store.admin(write=True) as admin:
            await admin.settlement.settle([a_record(world)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await settle_and_fail()
    assert await totals_of(world) == UsageSums()
    await balance(database_url)


async def test_large_batches(world: Any, database_url: str) -> None:
    records = [a_record(world, adapter=f"adapter{i % 50}") for i in range(2500)]
    assert await settle(world, *records) == 2500
    assert await totals_of(world) == sum_of(records)
    await balance(database_url)


async def test_hours_and_days_are_utc(world: Any) -> None:
    zone = datetime.fromisoformat("2026-03-14T23:59:59.999999-05:00")
    await settle(world, a_record(world, started_at=zone))
    (hour,), (day,) = await rows_of(world, Grouping.HOUR), await rows_of(world, Grouping.DAY)
    assert hour.keys == {"start": datetime(2026, 3, 15, 4, tzinfo=UTC)}
    assert day.keys == {"start": datetime(2026, 3, 15, tzinfo=UTC)}


async def test_rows_are_grouped_by_every_dimension(world: Any) -> None:
    mine = a_record(world)
    next_version = a_record(world, adapter_version=2, key_id="key2")
    base = a_record(world, adapter=None, adapter_version=None, adapter_digest=None, started_at=NOON - timedelta(days=1))
    theirs = a_record(world, tenant_id=world.other.id, endpoint="embeddings")
    await settle(world, mine, next_version, base, theirs)
    expected: dict[Grouping, dict[Any, list[UsageRecord]]] = {
        Grouping.TENANT: {(world.acme.id,): [mine, next_version, base], (world.other.id,): [theirs]},
        Grouping.KEY: {("key1",): [mine, base, theirs], ("key2",): [next_version]},
        Grouping.ADAPTER: {("support",): [mine, next_version, theirs], ("",): [base]},
        Grouping.ENDPOINT: {("chat",): [mine, next_version, base], ("embeddings",): [theirs]},
        Grouping.MODEL: {
            ("base", "support", 1): [mine, theirs],
            ("base", "support", 2): [next_version],
            ("base", "", 0): [base],
        },
        Grouping.DAY: {
            (NOON.replace(hour=0),): [mine, next_version, theirs],
            (NOON.replace(hour=0) - timedelta(days=1),): [base],
        },
    }
    for grouping, groups in expected.items():
        found = {tuple(row.keys.values()): row.sums for row in await rows_of(world, grouping)}
        assert found == {key: sum_of(records) for key, records in groups.items()}, grouping
    assert await totals_of(world, tenant_id=world.other.id) == sum_of([theirs])
    assert await totals_of(world, adapter="support", key_id="key1") == sum_of([mine, theirs])


async def test_pages_contain_every_row_once_in_order(world: Any) -> None:
    records = [
        a_record(world, adapter=f"adapter{i % 4}", key_id=f"key{i % 3}", started_at=NOON - timedelta(hours=7 * (i % 5)))
        for i in range(60)
    ]
    await settle(world, *records)
    for groupings in ((Grouping.HOUR, Grouping.ADAPTER, Grouping.KEY), (Grouping.MODEL, Grouping.KEY), (Grouping.DAY,)):
        whole = await rows_of(world, *groupings, limit=1000)
        assert await rows_of(world, *groupings, limit=1) == whole
        assert await rows_of(world, *groupings, limit=7) == whole
        assert len({row.cursor for row in whole}) == len(whole)
        starts = [row.keys["start"] for row in whole if "start" in row.keys]
        assert starts == sorted(starts, reverse=True)
        assert sum(row.sums.requests for row in whole) == 60


@pytest.mark.parametrize("after", ["", "x", "WzFd", "bnVsbA", "W10", "e30", "~", "W" * 5000, "WyJcdTAwMDAiXQ", "é"])
async def test_an_invalid_cursor_is_rejected(world: Any, after: str) -> None:
    async with world.store.admin() as admin:
        for groupings in ({Grouping.ADAPTER}, {Grouping.DAY}, {Grouping.MODEL}):
            with pytest.raises(Invalid) as rejected:
                await admin.usage.rows(UsageQuery(*EVER, frozenset(groupings)), after=after)
            assert rejected.value.param == "after"


async def test_a_period_is_widened_to_whole_buckets(world: Any) -> None:
    records = [a_record(world, started_at=NOON + timedelta(minutes=20 * i)) for i in range(9)]  # 12:00 to 14:40
    await settle(world, *records)
    query = UsageQuery(NOON + timedelta(minutes=59), NOON + timedelta(minutes=61))
    assert (query.start, query.end) == (NOON, NOON + timedelta(hours=2))
    async with world.store.admin() as admin:
        assert await admin.usage.totals(query) == sum_of(records[:6])
        by_day = UsageQuery(NOON, NOON + timedelta(minutes=1), frozenset({Grouping.DAY}))
        assert await admin.usage.totals(by_day) == sum_of(records)


async def test_invalid_periods_are_rejected() -> None:
    with pytest.raises(Invalid, match="before"):
        UsageQuery(NOON, NOON - timedelta(hours=1))
    with pytest.raises(Invalid, match="not by both"):
        UsageQuery(*EVER, frozenset({Grouping.HOUR, Grouping.DAY}))


async def test_a_tenant_sees_its_own_usage_only(world: Any) -> None:
    mine, theirs = a_record(world), a_record(world, tenant_id=world.other.id, prompt_tokens=1000)
    await settle(world, mine, theirs)
    for tenant, expected in ((world.acme, mine), (world.other, theirs)):
        async with world.store.tenant(tenant.id) as scope:
            assert await scope.usage.totals(UsageQuery(*EVER)) == sum_of([expected])
            rows = await scope.usage.rows(UsageQuery(*EVER, frozenset(Grouping) - {Grouping.HOUR}))
            assert [row.keys["tenant_id"] for row in rows] == [tenant.id]
    with pytest.raises(UnscopedStatement):
        async with world.store.tenant(world.acme.id) as scope:
            await scope.usage.totals(UsageQuery(*EVER, only={"tenant_id": world.other.id}))


async def test_a_page_and_its_totals_are_two_statements_over_sums(world: Any) -> None:
    await settle(world, *(a_record(world, key_id=f"key{i}") for i in range(50)))
    sent: list[str] = []
    engine = world.store._database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    async with world.store.tenant(world.acme.id) as scope:
        query = UsageQuery(*EVER, frozenset({Grouping.DAY, Grouping.KEY}))
        await scope.usage.rows(query, limit=10)
        await scope.usage.totals(query)
    selects = [statement for statement in sent if statement.startswith("SELECT")]
    assert len(selects) == 2
    assert not any("usage_records" in statement for statement in sent)


async def test_old_rows_are_deleted_and_their_sums_stay(world: Any, database_url: str) -> None:
    old = [a_record(world, started_at=NOON - timedelta(days=100)) for _ in range(5)]
    new = a_record(world)
    await settle(world, new, *old)
    removed = []
    for _ in range(3):
        async with world.store.admin(write=True) as admin:
            removed.append(await admin.settlement.purge(NOON - timedelta(days=90), limit=3))
    assert removed == [3, 2, 0]
    database = Database(database_url)
    async with database.operator() as session:
        assert (await session.scalars(select(UsageRecordRow.id))).all() == [new.id]
        assert await session.scalar(select(func.count()).select_from(UsageSumRow)) == 4
    await database.close()
    assert await totals_of(world) == sum_of([new, *old])


def test_ids_are_unique_and_ordered_by_time() -> None:
    ids = [new_usage_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [id_[:16] for id_ in ids] == sorted(id_[:16] for id_ in ids)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1, "0.0000000001"), (12_500_000, "0.00125"), (10**10, "1"), (12 * 10**11, "120")],
)
def test_amounts_are_exact(amount: int, text: str) -> None:
    assert amount_text(amount) == text


def test_more_cached_than_prompt_is_a_bug(world: Any) -> None:
    with pytest.raises(AssertionError):
        replace(a_record(world), cached_tokens=11)
