import asyncio
import gc
import random
import sys
from typing import Any

import pytest
from sqlalchemy import text
from thinned import thinned

from loragate.adapter_store.auth.installation import read_fact, write_fact
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Unavailable

ROUNDS = 100
COUNT = """
import gc; gc.disable()  # imports create no garbage
import asyncio, sys
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.auth.installation import read_fact, write_fact

async def main(url, rounds):
    database = Database(url)
    for _ in range(rounds):
        async with database.operator(write=True) as session:
            count = int(await read_fact(session, "counter") or b"0")
            await write_fact(session, "counter", str(count + 1).encode())
    await database.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("backend", thinned(["sqlite", "postgres"], fast={"postgres"}))
async def test_three_processes_lose_no_update(database_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", COUNT, database_url, str(ROUNDS)) for _ in range(3)
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    database = Database(database_url)
    async with database.operator() as session:
        assert await read_fact(session, "counter") == str(3 * ROUNDS).encode()
    await database.close()


async def test_an_error_rolls_back(database_url: str) -> None:
    database = Database(database_url)

    async def write_and_fail() -> None:
        async with database.operator(write=True) as session:
            await write_fact(session, "a", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await write_and_fail()
    async with database.operator() as session:
        assert await read_fact(session, "a") is None
    await database.close()


async def test_a_reader_sees_one_snapshot_and_blocks_no_writer(database_url: str) -> None:
    database = Database(database_url)
    async with database.operator() as reader:
        assert await read_fact(reader, "a") is None
        async with database.operator(write=True) as writer:
            await write_fact(writer, "a", b"1")
        assert await read_fact(reader, "a") is None
    async with database.operator() as reader:
        assert await read_fact(reader, "a") == b"1"
    await database.close()


async def test_writers_of_different_tenants_do_not_wait_on_postgres(world: Any, backend: str) -> None:
    """On SQLite all writers take turns; on Postgres only those of one tenant do."""
    if backend == "sqlite":
        pytest.skip("SQLite has one writer")
    async with world.adapters(write=True) as mine:
        await mine.list()
        async with asyncio.timeout(5), world.adapters(world.other, write=True) as theirs:
            await theirs.list()


async def test_sqlite_pragmas(database_url: str, backend: str) -> None:
    if backend != "sqlite":
        pytest.skip("about SQLite")
    database = Database(database_url)
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}
    async with database.operator() as session:
        for pragma, value in wanted.items():
            assert await session.scalar(text(f"PRAGMA {pragma}")) == value
    await database.close()


async def test_an_unreachable_database_is_reported_as_unavailable(tmp_path: Any) -> None:
    for url in (f"sqlite:///{tmp_path / 'missing' / 'x.db'}", f"postgresql://user@/x?host={tmp_path}"):
        database = Database(url)
        with pytest.raises(Unavailable):
            async with database.operator() as session:
                await read_fact(session, "a")
        await database.close()


async def write_fact_between_reads(database: Database, name: str) -> None:
    async with database.operator(write=True) as session:
        await read_fact(session, name)
        await write_fact(session, name, b"1")
        await read_fact(session, name)


async def test_a_cancelled_transaction_blocks_nothing(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """At any moment of a transaction, and without a traceback. SQLite's connections keep their locks for as long as
    Python keeps a statement.
    """
    database = Database(database_url)

    chance = random.Random(1)
    gc.disable()
    try:
        for _ in range(100):
            cut = [asyncio.create_task(write_fact_between_reads(database, "cut")) for _ in range(3)]
            await asyncio.sleep(chance.uniform(0, 0.012))
            for task in cut:
                task.cancel()
            async with asyncio.timeout(5):
                await write_fact_between_reads(database, "whole")
            await asyncio.gather(*cut, return_exceptions=True)
    finally:
        gc.enable()
        await database.close()
    assert [record for record in caplog.records if record.name.startswith("sqlalchemy")] == []


async def test_repeated_cancellation_leaves_nothing_behind(database_url: str) -> None:
    """Also while a connection is opened, or closed because of the first cancellation."""
    database = Database(database_url)
    chance = random.Random(1)
    before = asyncio.all_tasks()
    for _ in range(30):
        cut = [asyncio.create_task(write_fact_between_reads(database, "cut")) for _ in range(3)]
        await asyncio.sleep(chance.uniform(0, 0.012))
        cutting = set(cut)
        while cutting:
            for task in cutting:
                task.cancel()
            _, cutting = await asyncio.wait(cutting, timeout=0.001)
        if left := asyncio.all_tasks() - before:
            _, left = await asyncio.wait(left, timeout=30)
        assert not left, "it waits for ever"
    await write_fact_between_reads(database, "whole")
    await database.close()
