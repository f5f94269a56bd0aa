"""A Postgres connection is tested before use only if it may have died meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from loragate.adapter_store.database import database as module
from loragate.adapter_store.database.database import Database

ALIVE = text("SELECT 1")


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def tested(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections that were tested."""
    dialect, tested = database._engine.dialect, list[Any]()
    ping = dialect.do_ping

    def count(connection: Any) -> bool:
        tested.append(connection)
        return ping(connection)

    monkeypatch.setattr(dialect, "do_ping", count)
    return tested


async def _ask(database: Database) -> Any:
    async with database.operator() as session:
        await session.execute(ALIVE)
        return (await (await session.connection()).get_raw_connection()).driver_connection


async def test_a_recently_used_connection_is_trusted(
    database: Database, tested: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRUSTED_SECONDS", 3600.0)
    first = await _ask(database)
    assert await _ask(database) is first
    assert tested == []


async def test_an_idle_connection_is_tested(
    database: Database, tested: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRUSTED_SECONDS", -1.0)
    first = await _ask(database)
    assert await _ask(database) is first
    assert len(tested) == 1


async def test_a_connection_closed_by_the_server_is_replaced(
    database: Database, postgres_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRUSTED_SECONDS", 3600.0)
    first = await _ask(database)
    await postgres_server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'reused'")
    while not first.is_closed():
        await asyncio.sleep(0.01)
    assert await _ask(database) is not first


async def test_a_connection_that_died_unnoticed_is_replaced(
    database: Database, tested: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server's machine vanished."""
    monkeypatch.setattr(module, "_TRUSTED_SECONDS", -1.0)
    first = await _ask(database)

    def fails(connection: Any) -> bool:
        raise OSError

    monkeypatch.setattr(database._engine.dialect, "do_ping", fails)
    assert await _ask(database) is not first
