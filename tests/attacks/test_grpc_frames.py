"""Floods and slowness over HTTP/2, as no gRPC client would send them."""

import asyncio
from contextlib import suppress

import grpc
import pytest

from loragate.v1 import inference_pb2 as pb
from tests.attacks.raw_grpc import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    Frame,
    connected,
    fields,
)
from tests.attacks.rest import no_leases
from tests.gateway import grpc_client
from tests.gateway.grpc_client import code_of
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

GENERATE = "/loragate.v1.InferenceService/Generate"
REQUEST = pb.GenerateRequest(model=MODEL_ID, prompt="one two three", max_tokens=3)


async def assert_served(gateway: Gateway) -> None:
    async with grpc_client.connected(gateway.grpc_target, gateway.key) as client:
        assert (await client.inference.Generate(REQUEST, metadata=client.metadata)).usage.completion_tokens == 3


async def test_a_flood_of_pings(attacked: Gateway) -> None:
    async with connected(attacked) as connection:
        await connection.send(*[Frame(PING, 0, 0, b"12345678")] * 1000)
        ended = await connection.until(GOAWAY)
        assert ended is not None
        assert ended.error == ENHANCE_YOUR_CALM
        await assert_served(attacked)


async def test_more_streams_than_one_connection_may_have(attacked: Gateway) -> None:
    """Floods of calls without a message: those over the limit are rejected, and the others stay within it."""
    block = fields(attacked, GENERATE)
    async with connected(attacked) as connection:
        await connection.send(*(Frame(HEADERS, END_HEADERS, 2 * i + 1, block) for i in range(1200)))
        rejected = await connection.until(RST_STREAM, GOAWAY)
        assert rejected is not None
        assert rejected.error in (REFUSED_STREAM, ENHANCE_YOUR_CALM)
        assert attacked.lifecycle.running <= 1024
        await assert_served(attacked)


async def test_streams_that_are_reset_at_once(attacked: Gateway) -> None:
    """CVE-2023-44487."""
    block, message = fields(attacked, GENERATE), REQUEST.SerializeToString()
    data = b"\0" + len(message).to_bytes(4) + message
    reset = CANCEL.to_bytes(4)
    async with connected(attacked) as connection:
        for i in range(2000):
            stream = 2 * i + 1
            await connection.send(
                Frame(HEADERS, END_HEADERS, stream, block),
                Frame(DATA, END_STREAM, stream, data),
                Frame(RST_STREAM, 0, stream, reset),
            )
        await assert_served(attacked)
    assert await attacked.lifecycle.idle(30)
    await no_leases(attacked)


async def test_endless_headers(attacked: Gateway) -> None:
    """CVE-2024-27316: each part of them is small."""
    more = b"\0\x05x-abc\x7d" + b"y" * 125
    async with connected(attacked) as connection:
        await connection.send(Frame(HEADERS, 0, 1, fields(attacked, GENERATE)))
        ended = asyncio.create_task(connection.until(GOAWAY, RST_STREAM, HEADERS))
        for _ in range(100_000):
            await connection.send(Frame(CONTINUATION, 0, 1, more * 100))
            await asyncio.sleep(0)  # sending does not yield once the connection is closed
            if ended.done():
                break
        assert ended.done(), "a gigabyte of them was read"


async def test_metadata_of_many_keys(attacked: Gateway) -> None:
    async with grpc_client.connected(attacked.grpc_target, attacked.key) as client:
        flood = (*client.metadata, *((f"x-{i}", "y") for i in range(5000)))
        assert await code_of(client.inference.Generate(REQUEST, metadata=flood)) == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_that_trickles(attacked: Gateway) -> None:
    async with connected(attacked) as connection:
        await connection.send(Frame(HEADERS, END_HEADERS, 1, fields(attacked, GENERATE)))
        reported = asyncio.create_task(connection.until(HEADERS, RST_STREAM))
        await connection.send(Frame(DATA, 0, 1, b"\0" + (1000).to_bytes(4)))
        while not reported.done():
            await connection.send(Frame(DATA, 0, 1, b"x"))
            await asyncio.wait((reported,), timeout=0.1)
        assert await reported is not None


@pytest.mark.parametrize("start", [b"", PREFACE[:10], PREFACE])
async def test_a_connection_that_never_starts(attacked: Gateway, start: bytes) -> None:
    async with connected(attacked, start) as connection:
        assert await connection.until(GOAWAY) is not None
        assert await connection.until() is None, "it was hung up"


@pytest.mark.parametrize("seconds", [0, 0.000001, 0.01])
async def test_deadlines_that_have_passed(attacked: Gateway, seconds: float) -> None:
    attacked.engine.pause_after = 0
    async with grpc_client.connected(attacked.grpc_target, attacked.key) as client:
        for method in (client.inference.Generate, client.inference.Chat):
            request = (
                REQUEST
                if method is client.inference.Generate
                else pb.ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": "x"}])
            )
            call = method(request, metadata=client.metadata, timeout=seconds)
            assert await code_of(call) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await attacked.lifecycle.idle(30)
    await no_leases(attacked)


async def test_a_storm_of_cancellations(attacked: Gateway) -> None:
    """At every moment of a call's life."""
    attacked.engine.pause_after = 2
    async with grpc_client.connected(attacked.grpc_target, attacked.key) as client:
        calls = []
        for i in range(300):
            call = client.inference.GenerateStream(REQUEST, metadata=client.metadata)
            calls.append(call)
            for _ in range(i % 7):
                await asyncio.sleep(0)
            if i % 3:
                call.cancel()
        await attacked.engine.paused.wait()
        for call in calls:
            call.cancel()
        for call in calls:
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call.code()
    assert await attacked.lifecycle.idle(30)
    await no_leases(attacked)
    while attacked.engine.aborted.qsize() < len(attacked.engine.submits):
        await asyncio.sleep(0.01)
