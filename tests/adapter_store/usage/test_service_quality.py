"""A tenant's service quality, on both databases."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loragate.adapter_store.usage import service_quality as service
from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.record import Outcome, UsageRecord, usage_id_at
from loragate.adapter_store.usage.service_quality import Reason, Service, ServiceQuery

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATELY = ServiceQuery(NOON, NOON + HOUR)


def _record(world: Any, number: int, started_at: datetime = NOON, **fields: Any) -> UsageRecord:
    plain: dict[str, Any] = {
        "id": f"{usage_id_at(started_at + timedelta(seconds=1, milliseconds=number))}x",
        "request_id": "req",
        "tenant_id": world.acme.id,
        "key_id": "key",
        "endpoint": "chat",
        "base_model": "base",
        "started_at": started_at,
        "ttft_ms": number,
    }
    return UsageRecord(**plain | fields)


async def _served(world: Any, query: ServiceQuery = LATELY) -> Service:
    async with world.store.tenant(world.acme.id) as scope:
        served: Service = await scope.usage.service(query)
    return served


async def test_a_tenants_quality_covers_its_own_requests_of_the_period(world: Any) -> None:
    assert await _served(world) == Service()
    records = [_record(world, number, adapter=("a", None)[number % 2]) for number in range(1, 101)]
    records += [
        _record(world, 101, ttft_ms=None, outcome=Outcome.FAILED),
        _record(world, 102, ttft_ms=None, outcome=Outcome.DISCONNECTED),
        _record(world, 5000, tenant_id=world.other.id),
        _record(world, 6000, started_at=NOON - timedelta(seconds=1)),
        _record(world, 7000, started_at=NOON + HOUR),
    ]
    async with world.store.admin(write=True) as admin:
        await admin.settlement.settle(records)
    assert await _served(world) == Service(102, 1, FirstToken(50.5, 50, 90, 95, 99))


async def test_only_the_latest_requests_are_considered(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 3)
    async with world.store.admin(write=True) as admin:
        await admin.settlement.settle([_record(world, number) for number in range(10)])
    assert await _served(world) == Service(3, 0, FirstToken(8.0, 8, 9, 9, 9))


async def test_rejected_requests_are_added_up(world: Any) -> None:
    acme, other = world.acme.id, world.other.id
    for _ in range(2):
        async with world.store.admin(write=True) as admin:
            await admin.settlement.add_rejections({})
            await admin.settlement.add_rejections(
                {
                    (acme, NOON, Reason.OVERLOAD): 2,
                    (acme, NOON, Reason.LIMIT): 1,
                    (acme, NOON - HOUR, Reason.LIMIT): 50,
                    (other, NOON, Reason.LIMIT): 70,
                }
            )
    assert (await _served(world)).rejected == {Reason.OVERLOAD: 4, Reason.LIMIT: 2}
    longer = await _served(world, ServiceQuery(NOON - HOUR, NOON + HOUR))
    assert longer.rejected == {Reason.OVERLOAD: 4, Reason.LIMIT: 102}
