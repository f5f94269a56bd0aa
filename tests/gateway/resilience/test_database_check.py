"""The database as probes see it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from loragate.adapter_store.errors import Unavailable
from loragate.gateway.resilience import database_check, ttl_cache
from loragate.gateway.resilience.database_check import DatabaseCheck
from tests.gateway.auth_clock import Clock


class Database:
    """Stands in for a store whose database comes, goes and hangs."""

    def __init__(self) -> None:
        self.reads = 0
        self.away = False
        self.responds = asyncio.Event()
        self.responds.set()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        self.reads += 1
        await self.responds.wait()
        if self.away:
            raise Unavailable("The database is away.")
        yield SimpleNamespace(tenants=SimpleNamespace(list=self._list))

    async def _list(self, limit: int) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    for module in (database_check, ttl_cache):
        monkeypatch.setattr(module, "elapsed", fake)
    return fake


async def test_any_number_of_probes_read_it_once_a_second(clock: Clock) -> None:
    database = Database()
    check = DatabaseCheck(database)  # type: ignore[arg-type]
    for _ in range(5):
        assert set(await asyncio.gather(*(check.state() for _ in range(100)))) == {"ok"}
    assert database.reads == 1
    clock.now += 1.01
    database.away = True
    assert set(await asyncio.gather(*(check.state() for _ in range(100)))) == {"not reachable"}
    assert database.reads == 2
    clock.now += 1.01
    database.away = False
    assert await check.state() == "ok"


async def test_one_that_hangs_is_waited_for_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_check, "_DATABASE_SECONDS", 0.01)
    database = Database()
    database.responds.clear()
    check = DatabaseCheck(database)  # type: ignore[arg-type]
    assert await check.state() == "not reachable"
    assert await check.state() == "not reachable"
    assert database.reads == 1
