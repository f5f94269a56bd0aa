"""SQLite's driver: the calls in a connection's thread, results of any length, and transactions that begin late."""

from typing import Any

import pytest
from sqlalchemy import text

from loragate.adapter_store.auth.installation import read_fact, write_fact
from loragate.adapter_store.database import database as database_module
from loragate.adapter_store.database import sqlite_driver
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import Unavailable

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :last) SELECT i FROM n"


pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What connections have called in their threads, and what they did not wait for."""
    seen: list[Any] = []
    run, commit = sqlite_driver.SqliteConnection._execute, sqlite_driver.SqliteConnection.commit

    async def recorded(connection: Any, call: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(call)
        return await run(connection, call, *arguments, **options)

    async def committed(connection: Any) -> None:
        before = len(seen)
        await commit(connection)
        seen.append("waited" if len(seen) > before else "did not wait")

    monkeypatch.setattr(sqlite_driver.SqliteConnection, "_execute", recorded)
    monkeypatch.setattr(sqlite_driver.SqliteConnection, "commit", committed)
    return seen


async def test_each_statement_is_one_call(database_url: str, calls: list[Any]) -> None:
    database = Database(database_url)
    async with database.operator() as session:
        await read_fact(session, "a")  # opens the connection
    calls.clear()
    async with database.operator() as session:
        await read_fact(session, "a")
        await read_fact(session, "b")
    assert (len(calls), calls[-1]) == (3, "did not wait")
    calls.clear()
    async with database.operator(write=True) as session:
        await write_fact(session, "a", b"1")
    statements = len(calls) - 2
    assert (statements, calls[-1]) == (2, "waited")
    calls.clear()
    async with database.operator(write=True):
        pass
    assert not calls
    await database.close()


@pytest.mark.parametrize("last", [1, 255, 256, 257, 1000])
async def test_all_rows_come(database_url: str, last: int) -> None:
    engine = create_engine(driver_url(database_url))
    async with engine.connect() as connection:
        assert (await connection.scalars(text(NUMBERS), {"last": last})).all() == list(range(1, last + 1))
        for size in (1, 100, 300):
            streamed = await connection.stream_scalars(text(NUMBERS).execution_options(yield_per=size), {"last": last})
            assert [each async for each in streamed] == list(range(1, last + 1)), size
        streamed = await connection.stream_scalars(text(NUMBERS), {"last": last})
        assert await streamed.first() == 1
    await engine.dispose()


async def test_a_writer_that_cannot_begin_says_so_and_can_begin_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT", 0.05)
    one, other = Database(database_url), Database(database_url)
    async with one.operator(write=True) as session:
        await write_fact(session, "a", b"1")
        with pytest.raises(Unavailable):
            async with other.operator(write=True) as late:
                await write_fact(late, "a", b"2")
    async with other.operator(write=True) as session:
        assert await read_fact(session, "a") == b"1"
        await write_fact(session, "a", b"3")
    async with one.operator() as session:
        assert await read_fact(session, "a") == b"3"
    for each in (one, other):
        await each.close()


async def test_a_reader_that_has_ended_holds_no_snapshot(database_url: str) -> None:
    """What it read last does not keep SQLite from taking all of the log into the file."""
    database = Database(database_url)
    async with database.operator(write=True) as session:
        await write_fact(session, "a", b"1")
    async with database.operator() as session:
        assert await read_fact(session, "a") == b"1"
    async with database.operator(write=True) as session:
        await write_fact(session, "a", b"2")
    async with database.operator() as session:
        busy, log, moved = (await session.execute(text("PRAGMA wal_checkpoint(PASSIVE)"))).one()
    assert busy == 0
    assert log == moved
    await database.close()
