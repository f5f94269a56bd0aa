"""Usage records for tests, and what the database contains of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.usage import UsageRecordRow
from loragate.adapter_store.usage.query import UsageQuery
from loragate.adapter_store.usage.record import UsageRecord, new_usage_id
from loragate.gateway.metering.ledger import Prices
from loragate.gateway.metering.metrics import UsageMetrics

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EVER = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
SUMMED = (*COUNTS, "computed_prompt_tokens", "generated_tokens")
A_RECORD = UsageRecord(
    id="use_1",
    request_id="req_1",
    tenant_id="tn_1",
    key_id="key1",
    endpoint="chat",
    base_model="tiny/base",
    started_at=NOON,
    adapter="support",
    adapter_version=3,
    adapter_digest="sha256:" + "d" * 64,
    prompt_tokens=10,
    completion_tokens=5,
    cached_tokens=4,
)


def opened(**fields: Any) -> UsageRecord:
    """Return a request that has just begun, or one that ended if its tokens are given."""
    return replace(A_RECORD, id=new_usage_id(), **dict.fromkeys(COUNTS, 0) | fields)


def metrics() -> UsageMetrics:
    return UsageMetrics(CollectorRegistry())


def value(metric: Any) -> float:
    """Return the value of a metric without labels."""
    return float(next(iter(metric.collect())).samples[0].value)


NO_PRICES = Prices()


async def ledger_rows(database_url: str) -> dict[str, UsageRecordRow]:
    """Return the ledger's rows by id."""
    database = Database(database_url)
    async with database.operator() as session:
        rows = (await session.scalars(select(UsageRecordRow))).all()
        session.expunge_all()
    await database.close()
    return {row.id: row for row in rows}


async def check_balance(store: Store, database_url: str) -> None:
    """Check that the hourly and daily sums agree with the ledger."""
    rows = (await ledger_rows(database_url)).values()
    expected = [len(rows), *(sum(getattr(row, name) for row in rows) for name in SUMMED)]
    by_day = UsageQuery(*EVER)
    by_hour = UsageQuery(EVER[0] + timedelta(hours=1), EVER[1])
    assert by_day.width != by_hour.width
    async with store.admin() as admin:
        for query in (by_day, by_hour):
            sums = await admin.usage.totals(query)
            assert [sums.requests, *(getattr(sums, name) for name in SUMMED)] == expected
