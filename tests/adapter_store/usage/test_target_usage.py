from datetime import UTC, datetime, timedelta
from typing import Any

from loragate.adapter_store.usage.first_token import FirstToken
from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.adapter_store.usage.target_usage import AliasTargetQuery, AliasTargetUsage

THEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _record(world: Any, number: int, **fields: Any) -> UsageRecord:
    plain: dict[str, Any] = {
        "id": f"use_{number}",
        "request_id": "req",
        "tenant_id": world.acme.id,
        "key_id": "key",
        "endpoint": "chat",
        "base_model": "base",
        "started_at": THEN,
        "adapter": "support",
        "adapter_version": 1,
        "adapter_alias": "default",
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "ttft_ms": number,
    }
    return UsageRecord(**plain | fields)


async def test_the_ledger_distinguishes_versions(world: Any) -> None:
    records = [_record(world, number) for number in range(1, 101)]
    records += [
        _record(world, 101, adapter_version=2, outcome=Outcome.FAILED, ttft_ms=None),
        _record(world, 102, adapter_version=2, outcome=Outcome.DISCONNECTED, ttft_ms=70),
        _record(world, 103, adapter_alias="canary"),
        _record(world, 104, adapter_alias=None),
        _record(world, 105, adapter="other"),
        _record(world, 106, tenant_id=world.other.id),
        _record(world, 107, started_at=THEN + HOUR),
        _record(world, 108, started_at=THEN - HOUR),
    ]
    async with world.store.admin(write=True) as admin:
        assert await admin.settlement.settle(records) == len(records)
    async with world.store.tenant(world.acme.id) as scope:
        targets = await scope.usage.targets(AliasTargetQuery("support", "default", THEN, THEN + HOUR))
        assert await scope.usage.targets(AliasTargetQuery("support", "unknown", THEN, THEN + HOUR)) == ()
    assert targets == (
        AliasTargetUsage(1, 100, 0, 1000, 200, FirstToken(50.5, 50, 90, 95, 99)),
        AliasTargetUsage(2, 2, 1, 20, 4, FirstToken(70.0, 70, 70, 70, 70)),
    )
