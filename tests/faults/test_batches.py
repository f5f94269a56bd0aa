"""Gateways, engine and database end without notice in the middle of a batch: each line has one result and one row in
the ledger, and what was in flight costs nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from openai.types import Batch
from private_postgres import PostgresServer, private_postgres
from sqlalchemy import update

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.tables.batches import BatchRow
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.batches.batch_files import chat_line, create, ended, results
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.gateway_setup import new_tenants
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.usage_records import ledger_rows

FINISHED, HELD = 30, 10  # lines that the engine answers, and those that it holds back until it is resumed
LINES = [chat_line(f"line-{n}", seed=n, max_tokens=3) for n in range(FINISHED + HELD)]


@pytest.fixture
def held_lines(engine: StubEngine) -> None:
    engine.respond_with("Yes.")
    engine.pauses = lambda submit: submit.sampling.seed >= FINISHED
    engine.pause_after = 1


async def until_held(client: AsyncOpenAI, batch: Batch) -> None:
    """Wait until only the lines that the engine holds back are left."""
    async with asyncio.timeout(30):
        while batch.request_counts is None or batch.request_counts.completed < FINISHED:
            await asyncio.sleep(0.02)
            batch = await client.batches.retrieve(batch.id)


async def expire_leases(config: GatewayConfig) -> None:
    """Let half a minute pass."""
    database = Database(config.database_url)
    async with database.operator(write=True) as session:
        await session.execute(update(BatchRow).values(held_until=database_now()))
    await database.close()


async def check(client: AsyncOpenAI, batch: Batch, config: GatewayConfig) -> None:
    """Check the results, and the ledger, which has what they cost and nothing else."""
    batch = await ended(client, batch)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    output = await results(client, batch.output_file_id)
    assert output.keys() == {line["custom_id"] for line in LINES}
    rows = (await ledger_rows(config.database_url)).values()
    assert len(rows) == len(LINES)
    usages = {line["response"]["request_id"]: line["response"]["body"]["usage"] for line in output.values()}
    billed = {row.request_id: (row.prompt_tokens, row.completion_tokens) for row in rows}
    assert billed == {each: (usage["prompt_tokens"], usage["completion_tokens"]) for each, usage in usages.items()}
    assert {row.endpoint for row in rows} == {"batch.chat"}
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(row.completion_tokens for row in rows)


async def test_a_killed_gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], held_lines: None
) -> None:
    async with gateway_in_a_process(config, engine, tenants) as first:
        async with first.gateway.openai() as client:
            batch = await create(client, LINES)
            await until_held(client, batch)
        first.process.kill()
        await first.process.wait()
    submitted = len(engine.submits)
    engine.resume.set()
    await expire_leases(config)
    async with serving(config, engine, tenants) as second, second.openai() as client:
        await check(client, batch, config)
    assert len(engine.submits) == submitted + HELD, "only what had no result was run again"


async def test_a_gateway_that_lost_its_lease(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], held_lines: None
) -> None:
    async with serving(config, engine, tenants) as first, first.openai() as client:
        batch = await create(client, LINES)
        await until_held(client, batch)
        await expire_leases(config)
        async with serving(config, engine, tenants) as second, second.openai():
            async with asyncio.timeout(30):
                while len(engine.submits) < len(LINES) + HELD:
                    await asyncio.sleep(0.02)
            engine.resume.set()  # both get all answers, and one of them may commit
            await check(client, batch, config)


async def test_an_engine_that_dies(gateway: Gateway, held_lines: None) -> None:
    async with gateway.openai() as client:
        batch = await create(client, LINES)
        await until_held(client, batch)
        await gateway.engine.kill()
        gateway.engine.resume.set()
        await gateway.engine.start()
        await check(client, batch, gateway.config)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


@asynccontextmanager
async def on_postgres(config: GatewayConfig, engine: StubEngine, postgres: PostgresServer) -> AsyncIterator[Gateway]:
    await postgres.run("CREATE DATABASE batches")
    config = replace(config, database_url=postgres.url("batches"))
    await upgrade(config.database_url)
    async with serving(config, engine, await new_tenants(config)) as gateway:
        await gateway.until_ready()
        yield gateway


async def test_a_database_that_dies(
    config: GatewayConfig, engine: StubEngine, postgres: PostgresServer, held_lines: None, tmp_path: Path
) -> None:
    async with on_postgres(config, engine, postgres) as gateway, gateway.openai() as client:
        batch = await create(client, LINES)
        await until_held(client, batch)
        await asyncio.to_thread(postgres.stop)
        engine.resume.set()
        await asyncio.sleep(0.5)  # their results come while nothing can be committed
        await asyncio.to_thread(postgres.start)
        await check(client, batch, gateway.config)
