"""Bytes that are not messages, messages that are too large, and floods do not cause server errors."""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest
from grpc_status.rpc_status import from_call

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.grpc.methods import METHODS
from loragate.v1 import inference_pb2 as pb
from tests.gateway.grpc_client import Client, code_of, connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

GENERATE = pb.GenerateRequest(model=MODEL_ID, prompt="one two three four five")
CHAT_METHOD = "/loragate.v1.InferenceService/Chat"


async def test_messages_over_the_limit(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    small = replace(config, max_json_bytes=4096)
    async with serving(small, engine, tenants) as gateway, connected(gateway.grpc_target, gateway.key) as client:
        await gateway.until_ready()
        a_little = pb.GenerateRequest(model=MODEL_ID, prompt="x" * 5000)
        error = await rejection(client.inference.Generate(a_little, metadata=client.metadata))
        assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "request_too_large")
        far = pb.GenerateRequest(model=MODEL_ID, prompt="x" * 50_000)
        assert (
            await code_of(client.inference.Generate(far, metadata=client.metadata))
            == grpc.StatusCode.RESOURCE_EXHAUSTED
        )
        fits = pb.GenerateRequest(model=MODEL_ID, prompt="x")
        assert (await client.inference.Generate(fits, metadata=client.metadata)).text


async def test_a_decompression_bomb_is_not_unpacked(gateway: Gateway, client: Client) -> None:
    bomb = pb.GenerateRequest(model=MODEL_ID, prompt="x" * (4 << 20))
    call = client.inference.Generate(bomb, metadata=client.metadata, compression=grpc.Compression.Gzip)
    assert await code_of(call) == grpc.StatusCode.UNIMPLEMENTED
    assert (await client.inference.Generate(GENERATE, metadata=client.metadata)).text


async def test_a_call_without_a_message(client: Client) -> None:
    error = await rejection(client.raw(CHAT_METHOD))
    assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_message")


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x12\x02\x0a\x00\xff" * 50])
async def test_invalid_messages(client: Client, raw: bytes) -> None:
    error = await rejection(client.raw(CHAT_METHOD, raw))
    assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_message")


async def ending(client: Client, method: str, messages: list[bytes]) -> grpc.StatusCode:
    try:
        await client.raw(method, *messages)
    except grpc.aio.AioRpcError as error:
        # If the response comes while the client still sends, its library may see the stream's end before it.
        # Such an INTERNAL lacks the details that each of our errors has.
        reset = "RST_STREAM" in (error.details() or "") or "execute_batch" in (error.details() or "")
        without_response = len(messages) > 1 and error.code() is grpc.StatusCode.INTERNAL and not from_call(error)
        return grpc.StatusCode.CANCELLED if reset or without_response else error.code()
    return grpc.StatusCode.OK


async def test_random_bytes_break_nothing(gateway: Gateway, client: Client) -> None:
    """Pure noise, and valid messages with a few bytes changed; never a server error."""
    chance = random.Random(11)
    good = pb.ChatRequest(
        model=MODEL_ID,
        messages=[{"role": "user", "content": "hello"}],
        stop=["x"],
        tools=[{"type": "function", "function": {"name": "f", "parameters": '{"type": "object"}'}}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": "{}"}},
        logit_bias={3: 1.0},
        max_tokens=3,
    ).SerializeToString()
    broken = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    watch = "/grpc.health.v1.Health/Watch"  # responds forever
    for method in sorted(METHODS.keys() - {watch}):
        for _ in range(12):
            noise = bytearray(good)
            for _ in range(chance.randrange(1, 6)):
                noise[chance.randrange(len(noise))] = chance.randrange(256)
            messages = [chance.randbytes(chance.randrange(60)), bytes(noise)][: chance.randrange(1, 3)]
            chance.shuffle(messages)
            assert await ending(client, method, messages) not in broken, (method, messages)
    assert (await client.inference.Generate(GENERATE, metadata=client.metadata)).text


async def test_bytes_that_are_not_http2_break_nothing(gateway: Gateway, client: Client) -> None:
    host, _, port = gateway.grpc_target.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for start in (b"", b"GET / HTTP/1.1\r\n\r\n", preface, preface + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"):
        for _ in range(10):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(start + os.urandom(500))
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
    assert (await client.inference.Generate(GENERATE, metadata=client.metadata)).text


async def test_a_flood_of_metadata_is_rejected(gateway: Gateway, client: Client) -> None:
    flood = (*client.metadata, ("x-flood", "a" * 200_000))
    assert await code_of(client.inference.Generate(GENERATE, metadata=flood)) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await client.inference.Generate(GENERATE, metadata=client.metadata)).text
