"""Authentication while Redis, the database or the clock fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis_server import RedisServer

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Unavailable
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.auth_clock import Clock
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

Tenants = tuple[str, str, str]


@pytest.fixture
async def workers(
    config: GatewayConfig, engine: StubEngine, tenants: Tenants, clock: Clock, redis_server: RedisServer
) -> AsyncIterator[list[Gateway]]:
    """Two workers, with one database and one Redis."""
    shared = replace(config, redis_url=redis_server.url)
    async with serving(shared, engine, tenants) as one, serving(shared, engine, tenants) as other:
        for each in (one, other):
            await each.until_ready()
        yield [one, other]


async def status(gateway: Gateway, key: str, url: str = "/v1/adapters") -> int:
    async with gateway.http(key) as http:
        return (await http.get(url)).status_code


async def new_key(gateway: Gateway) -> dict[str, Any]:
    async with gateway.admin() as admin:
        made: dict[str, Any] = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys")).json()
    return made


async def revoke(gateway: Gateway, key: dict[str, Any]) -> None:
    async with gateway.admin() as admin:
        assert (await admin.delete(f"/admin/v1/keys/{key['id']}")).status_code == 200


async def test_a_revocation_applies_in_all_workers(workers: list[Gateway]) -> None:
    one, other = workers
    for _ in range(3):
        key = await new_key(one)
        assert [await status(each, key["secret"]) for each in workers] == [200, 200]
        await revoke(one, key)
        assert await status(one, key["secret"]) == 401
        while await status(other, key["secret"]) != 401:  # by a notice: the clock stands still
            await asyncio.sleep(0.01)


async def test_without_redis_the_bound_holds(workers: list[Gateway], redis_server: RedisServer, clock: Clock) -> None:
    one, other = workers
    key = await new_key(one)
    assert [await status(each, key["secret"]) for each in workers] == [200, 200]
    redis_server.stop()
    await revoke(one, key)
    assert await status(one, key["secret"]) == 401
    clock.now += 5.01
    assert await status(other, key["secret"]) == 401
    fresh = await new_key(one)
    assert [await status(each, fresh["secret"]) for each in workers] == [200, 200], "keys are read from the database"
    redis_server.start()
    while not await _received(one, other):  # until both have found Redis again
        await asyncio.sleep(0.05)


async def _received(one: Gateway, other: Gateway) -> bool:
    """Return whether one worker rejects what the other has revoked."""
    key = await new_key(one)
    assert await status(other, key["secret"]) == 200
    await revoke(one, key)
    return await status(other, key["secret"]) == 401


async def test_without_a_database_cached_keys_work_until_the_bound(
    clock: Clock, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await status(gateway, gateway.key, "/v1/models") == 200

    @asynccontextmanager
    async def away(database: Database, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        raise Unavailable("The database cannot be reached; try again.")
        yield

    monkeypatch.setattr(Database, "operator", away)
    clock.now += 4.9
    assert await status(gateway, gateway.key, "/v1/adapters") == 200
    assert await status(gateway, gateway.other_key) == 503
    assert await status(gateway, "lg-0123456789abcdef-from-before-there-were-checksums") == 503
    assert await status(gateway, "lg-never-issued") == 401, "what cannot be a key is not looked up"
    clock.now += 0.2
    async with gateway.http() as http:
        rejected = await http.get("/v1/adapters")
        live = await http.get("/healthz")
        ready = await http.get("/readyz")
    assert rejected.status_code == 503
    assert int(rejected.headers["retry-after"]) >= 1
    assert live.status_code == 200
    assert (ready.status_code, ready.json()["parts"]["database"]) == (503, "not reachable")
    monkeypatch.undo()
    assert await status(gateway, gateway.key) == 200


async def test_a_wall_clock_that_jumps_back_revives_nothing(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await new_key(gateway)
    assert await status(gateway, key["secret"]) == 200
    await revoke(gateway, key)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    assert await status(gateway, key["secret"]) == 401
