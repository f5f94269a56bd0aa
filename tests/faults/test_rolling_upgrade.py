"""A process of one release serves while the next one migrates the database, and can be restarted afterwards.

This release takes the part of the previous one: the migration of the next one is added to a copy of ours.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from newer_schema import with_expansion

from loragate.adapter_store.database.schema import upgrade
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.gateway_setup import new_tenants
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

_CALLERS = 4
_CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


async def call(gateway: Gateway, statuses: list[int]) -> None:
    """Use the gateway as tenants and the operator do, with reads and writes of the tables that are migrated."""
    async with gateway.http() as http, gateway.admin() as admin:
        while True:
            responses = [
                await http.post("/v1/chat/completions", json=_CHAT),
                await http.get("/v1/models"),
                await admin.post("/admin/v1/tenants", json={"name": f"tenant-{len(statuses)}-{id(http)}"}),
            ]
            made: httpx.Response = responses[-1]
            responses.append(await admin.post(f"/admin/v1/tenants/{made.json()['id']}/keys", json={}))
            statuses += [response.status_code for response in responses]


@asynccontextmanager
async def called(gateway: Gateway) -> AsyncIterator[list[int]]:
    """Use the gateway until the end of the block; yields the statuses of the responses as they come."""
    statuses: list[int] = []
    callers = [asyncio.create_task(call(gateway, statuses)) for _ in range(_CALLERS)]
    try:
        yield statuses
        assert not any(each.done() for each in callers)
    finally:
        for each in callers:
            each.cancel()
        ends = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ends), ends


async def more(statuses: list[int], number: int) -> None:
    enough = len(statuses) + number
    while len(statuses) < enough:
        await asyncio.sleep(0.01)


@pytest.mark.long
async def test_the_previous_release_serves_during_and_after_the_migration(
    on_both: GatewayConfig, engine: StubEngine, tmp_path: Path
) -> None:
    tenants = await new_tenants(on_both)
    async with gateway_in_a_process(on_both, engine, tenants) as old, called(old.gateway) as statuses:
        await more(statuses, 40)
        await upgrade(on_both.database_url, migrations=with_expansion(tmp_path / "newer"))
        await more(statuses, 80)
        restarting = gateway_in_a_process(on_both, engine, tenants)
        async with restarting as restarted, called(restarted.gateway) as later:
            await more(later, 40)
    assert set(statuses) | set(later) <= {200, 201}
