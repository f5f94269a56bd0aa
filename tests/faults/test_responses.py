"""A gateway ends without notice in the middle of a background response: another one runs it, and it ends once, with one
row in the ledger."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from private_postgres import PostgresServer, private_postgres
from sqlalchemy import update

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.tables.responses import StoredResponseRow
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.responses import ResponsesConfig
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.gateway_setup import new_tenants
from tests.gateway.running_gateway import serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.usage_records import ledger_rows

pytestmark = pytest.mark.long


async def test_a_killed_gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    config = replace(config, responses=ResponsesConfig(store=True))
    engine.respond_with("It is fine.")
    engine.pause_after = 2
    async with gateway_in_a_process(config, engine, tenants) as first:
        async with first.gateway.openai() as client:
            stream = await client.responses.create(model=MODEL_ID, input="Hello.", background=True, stream=True)
            seen = []
            async for event in stream:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    break
            await stream.close()
        first.process.kill()
        await first.process.wait()
    response_id = seen[0].response.id  # type: ignore[union-attr]
    database = Database(config.database_url)
    async with database.operator(write=True) as session:  # let half a minute pass
        await session.execute(update(StoredResponseRow).values(held_until=database_now()))
    await database.close()
    engine.pause_after = None
    engine.resume.set()
    async with serving(config, engine, tenants) as second, second.openai() as client:
        await second.until_ready()
        last = seen[-1].sequence_number
        again = await client.responses.retrieve(response_id, stream=True, starting_after=last)
        events = [event async for event in again]
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > last
        second = [event.type for event in events].index("response.created")  # behind what the first gateway had stored
        text = "".join(event.delta for event in events[second:] if event.type == "response.output_text.delta")
        assert (text, events[-1].type) == ("It is fine.", "response.completed")
        response = await client.responses.retrieve(response_id)
        assert response.output_text == "It is fine."
        async with asyncio.timeout(30):
            while not (rows := list((await ledger_rows(config.database_url)).values())):
                await asyncio.sleep(0.1)
    assert response.usage is not None
    assert [(row.endpoint, row.prompt_tokens, row.completion_tokens) for row in rows] == [
        ("responses", response.usage.input_tokens, response.usage.output_tokens)
    ]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


async def test_one_of_two_gateways_on_postgres_is_killed(
    config: GatewayConfig, engine: StubEngine, postgres: PostgresServer
) -> None:
    await postgres.run("CREATE DATABASE responses")
    config = replace(config, database_url=postgres.url("responses"), responses=ResponsesConfig(store=True))
    await upgrade(config.database_url)
    tenants = await new_tenants(config)
    engine.respond_with("It is fine.")
    engine.pause_after = 2
    async with gateway_in_a_process(config, engine, tenants) as first:
        async with first.gateway.openai() as client:
            asked = [await client.responses.create(model=MODEL_ID, input="Hello.", background=True) for _ in range(8)]
            async with asyncio.timeout(30):
                while any([(await client.responses.retrieve(each.id)).status == "queued" for each in asked]):
                    await asyncio.sleep(0.05)
        async with serving(config, engine, tenants) as second, second.openai() as client:
            await second.until_ready()
            own = await client.responses.create(model=MODEL_ID, input="Hello again.", background=True)
            first.process.kill()
            await first.process.wait()
            database = Database(config.database_url)
            async with database.operator(write=True) as session:  # let half a minute pass for those of the dead one
                of_the_dead = StoredResponseRow.id.in_([each.id for each in asked])
                await session.execute(update(StoredResponseRow).where(of_the_dead).values(held_until=database_now()))
            await database.close()
            engine.pause_after = None
            engine.resume.set()
            async with asyncio.timeout(60):
                for each in (*asked, own):
                    while (found := await client.responses.retrieve(each.id)).status in ("queued", "in_progress"):
                        await asyncio.sleep(0.1)
                    assert (found.status, found.output_text) == ("completed", "It is fine.")
                while len(rows := list((await ledger_rows(config.database_url)).values())) < len(asked) + 1:
                    await asyncio.sleep(0.1)
    assert len(rows) == len(asked) + 1, "what the dead gateway had computed costs nothing"
