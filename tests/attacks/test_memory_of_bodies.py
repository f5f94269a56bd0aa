"""Bodies that never end, of one tenant: they take a bounded share of the memory, and others are served."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.errors import InvalidRequest, TooManyRequests, Unavailable
from loragate.gateway.http.bodies import BodyBudget, Pace
from loragate.gateway.http.context import open_context
from loragate.gateway.schemas.inference.completions import CompletionRequest
from tests.attacks import raw_grpc
from tests.attacks.raw_http import Connection, connected, head
from tests.gateway.grpc_client import connected as grpc_connected
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

BODY = 1 << 20
CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    """It has memory for eight of the largest bodies."""
    small = replace(config, max_json_bytes=BODY, max_buffered_body_bytes=8 * BODY)
    async with serving(small, engine, tenants) as running:
        await running.until_ready()
        yield running


async def begun(stack: AsyncExitStack, gateway: Gateway, key: str, *, chunked: bool = False) -> Connection:
    """A request whose body lacks its end."""
    connection = await stack.enter_async_context(connected(gateway))
    length = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % BODY
    await connection.send(head(gateway, key=key) + length)
    piece = b"x" * (BODY - 1)
    await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
    return connection


def held(gateway: Gateway) -> int:
    return 8 * BODY - gateway.services.body_budget._free


@pytest.mark.parametrize("chunked", [False, True])
async def test_unfinished_bodies_of_a_tenant_take_half_of_the_memory(gateway: Gateway, chunked: bool) -> None:
    async with AsyncExitStack() as stack:
        bodies = [await begun(stack, gateway, gateway.key, chunked=chunked) for _ in range(4)]
        async with asyncio.timeout(20):
            while held(gateway) < 4 * (BODY - 1):
                await asyncio.sleep(0.01)
        refused = await (await begun(stack, gateway, gateway.key, chunked=chunked)).answer()
        assert (refused.status, refused.code) == (429, "too_many_body_bytes")
        assert "retry-after" in refused.headers
        async with gateway.http() as http, gateway.http(gateway.other_key) as other:
            assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200, "chats are small"
            large = {**CHAT, "metadata": {"note": "x" * (BODY - 1000)}}
            assert (await other.post("/v1/chat/completions", json=large)).status_code == 200
        assert held(gateway) <= 4 * BODY
        assert not any(body.reader.at_eof() for body in bodies)
    async with asyncio.timeout(20):
        while held(gateway):
            await asyncio.sleep(0.01)


async def test_a_body_over_the_limit_is_that_and_takes_no_memory(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        await connection.send(head(gateway) + b"Content-Length: %d\r\n\r\n" % (100 * BODY))
        assert (await connection.answer()).status == 413
    assert held(gateway) == 0


async def test_unfinished_messages_over_grpc(gateway: Gateway) -> None:
    """gRPC does not say how much of a message has arrived: one that takes a while counts in full."""
    method = "/loragate.v1.InferenceService/Generate"
    start = b"\0" + BODY.to_bytes(4) + b"x" * 1000
    async with raw_grpc.connected(gateway) as connection:
        for stream in range(1, 13, 2):
            block = raw_grpc.fields(gateway, method)
            await connection.send(
                raw_grpc.Frame(raw_grpc.HEADERS, raw_grpc.END_HEADERS, stream, block),
                raw_grpc.Frame(raw_grpc.DATA, 0, stream, start),
            )
        async with asyncio.timeout(20):
            while gateway.lifecycle.running > 4:
                await asyncio.sleep(0.01)
            while held(gateway) < 4 * BODY:
                await asyncio.sleep(0.01)
        async with grpc_connected(gateway.grpc_target, gateway.key) as client:
            from loragate.v1 import inference_pb2 as pb

            request = pb.ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": "hello"}], max_tokens=1)
            await client.inference.Chat(request, metadata=client.metadata)
        assert (gateway.lifecycle.running, held(gateway)) == (4, 4 * BODY)
    async with asyncio.timeout(20):
        while held(gateway):
            await asyncio.sleep(0.01)


async def test_a_body_in_tiny_pieces_takes_the_memory_of_a_body() -> None:
    """Kept as they came, pieces of two bytes would take twenty times as much."""
    pieces = 30_000
    sent = 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        sent += 1
        if sent % 100 == 0:
            await asyncio.sleep(0)  # the loop drops the timers of what has arrived
        return {"type": "http.request", "body": b"%02d" % (sent % 100), "more_body": sent < pieces}

    config = SimpleNamespace(max_json_bytes=BODY, body_pace=Pace(60.0))
    services = SimpleNamespace(config=config, body_budget=BodyBudget(8 * BODY), body_threads=None)
    scope: dict[str, Any] = {"type": "http", "headers": [], "app": SimpleNamespace(state=SimpleNamespace())}
    scope["app"].state.services = services
    open_context(scope)
    body = JsonBody(CompletionRequest)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="not valid JSON"):
            await body(Request(scope, receive))
        assert sent == pieces
        assert tracemalloc.get_traced_memory()[1] < 10 * 2 * pieces
    finally:
        tracemalloc.stop()


def test_tenants_that_take_all_they_can_leave_room_for_others() -> None:
    budget = BodyBudget(64 * BODY)
    for tenant in range(20):
        with suppress(TooManyRequests, Unavailable):
            while True:
                budget.reserve(f"tenant-{tenant}", BODY)
        if tenant == 3:
            with budget.reserve("another", BODY):
                pass
    with budget.reserve("another", 64 << 10):
        pass
    with pytest.raises(Unavailable):
        budget.reserve("another", BODY)
