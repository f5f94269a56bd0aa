"""More connections than a process has places for, by clients without a key."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.connection_limit import ConnectionLimit
from tests.attacks.raw_http import Connection, head, post
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

PLACES = 8
TEXT = {"model": MODEL_ID, "prompt": "one two", "max_tokens": 2}


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    async with serving(replace(config, max_connections=PLACES), engine, tenants) as running:
        await running.until_ready()
        yield running


async def opened(stack: AsyncExitStack, gateway: Gateway, address: str = "127.0.0.1") -> Connection:
    host, port = gateway.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    stack.callback(writer.close)
    return Connection(reader, writer)


async def test_connections_that_ask_nothing_close_those_of_their_own_client(gateway: Gateway) -> None:
    async with AsyncExitStack() as stack:
        mine = await opened(stack, gateway)
        await mine.send(post(gateway, TEXT))
        assert (await mine.answer()).status == 200
        flood = [await opened(stack, gateway, "127.0.0.2") for _ in range(5 * PLACES)]
        for each in flood[:-PLACES]:
            assert await each.reader.read() == b""
        await mine.send(post(gateway, TEXT))
        assert (await mine.answer()).status == 200, "an older connection, of another client"
        new = await opened(stack, gateway, "127.0.0.3")
        await new.send(post(gateway, TEXT))
        assert (await new.answer()).status == 200
        assert len(gateway.server.server_state.connections) <= PLACES


async def test_connections_that_serve_are_not_closed(gateway: Gateway) -> None:
    async with AsyncExitStack() as stack:
        busy = [await opened(stack, gateway, "127.0.0.2") for _ in range(PLACES)]
        for each in busy:
            await each.send(head(gateway) + b"Content-Length: 100\r\n\r\n")
        async with asyncio.timeout(20):
            while gateway.lifecycle.running < PLACES:
                await asyncio.sleep(0.01)
        refused = await (await opened(stack, gateway)).answer()
        assert (refused.status, refused.code) == (503, "too_many_connections")
        await busy[0].send(b" " * 100)
        assert (await busy[0].answer()).status == 400, "it is read, and is not JSON"
        late = await opened(stack, gateway)
        await late.send(post(gateway, TEXT))
        assert (await late.answer()).status == 200
    async with asyncio.timeout(20):
        while gateway.server.server_state.connections:
            await asyncio.sleep(0.01)


def test_the_process_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 500), hard))
        limit = ConnectionLimit(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, 1 << 16)
        assert limit._max_connections == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
