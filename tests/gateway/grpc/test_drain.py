"""Stopping a gateway process with gRPC calls in it."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1.inference_pb2 import GenerateRequest
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.http.test_drain import process
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

REQUEST = GenerateRequest(model=MODEL_ID, prompt="one two three")
Tenants = tuple[str, str, str]


@pytest.fixture
def listening(config: GatewayConfig) -> Iterator[GatewayConfig]:
    """Run a gateway process on a port that this test holds, as the supervisor does."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield replace(config, grpc_listen=f"127.0.0.1:{held.getsockname()[1]}")


async def test_streams_finish_new_calls_are_rejected_exit_is_zero(
    listening: GatewayConfig, engine: StubEngine, tenants: Tenants
) -> None:
    engine.pause_after = 1
    async with (
        process(listening, engine, tenants, drain_seconds=30) as gateway,
        connected(gateway.grpc_target, gateway.key) as client,
    ):
        stub: Any = HealthStub(client.channel)
        watch = stub.Watch(HealthCheckRequest())
        assert (await watch.read()).status == HealthCheckResponse.SERVING
        call = client.inference.GenerateStream(REQUEST, metadata=client.metadata)
        first = await anext(aiter(call))
        await engine.paused.wait()
        gateway.signal()
        await gateway.until_draining()
        rejected = await rejection(client.inference.Generate(REQUEST, metadata=client.metadata))
        assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
        engine.resume.set()
        pieces = [piece async for piece in call]
        assert (rejected.status, rejected.code) == (grpc.StatusCode.UNAVAILABLE, "shutting_down")
        assert rejected.retry_seconds
        assert first.text + "".join(piece.text for piece in pieces) == "one two three"
        assert await call.code() == grpc.StatusCode.OK
        assert await gateway.process.wait() == 0


@pytest.mark.long
async def test_the_deadline_ends_calls_with_a_typed_error(
    listening: GatewayConfig, engine: StubEngine, tenants: Tenants
) -> None:
    engine.pause_after = 1
    async with (
        process(listening, engine, tenants, drain_seconds=0.2) as gateway,
        connected(gateway.grpc_target, gateway.key) as client,
    ):
        stream = client.inference.GenerateStream(REQUEST, metadata=client.metadata)
        assert (await anext(aiter(stream))).text
        whole = client.inference.Generate(REQUEST, metadata=client.metadata)
        while len(engine.submits) < 2:
            await asyncio.sleep(0.01)
        gateway.signal()
        for ended in (await rejection(anext(aiter(stream))), await rejection(whole)):
            assert (ended.status, ended.code) == (grpc.StatusCode.UNAVAILABLE, "shutting_down")
        assert await gateway.process.wait() == 0
        assert {await engine.aborted.get() for _ in range(2)} == {submit.request_id for submit in engine.submits}


@pytest.mark.long  # as tests/gateway/http/test_drain.py does
async def test_a_second_signal_ends_at_once(listening: GatewayConfig, engine: StubEngine, tenants: Tenants) -> None:
    engine.pause_after = 1
    async with (
        process(listening, engine, tenants, drain_seconds=3600) as gateway,
        connected(gateway.grpc_target, gateway.key) as client,
    ):
        stream = client.inference.GenerateStream(REQUEST, metadata=client.metadata)
        assert (await anext(aiter(stream))).text
        await engine.paused.wait()
        gateway.signal()
        await gateway.until_draining()
        gateway.signal()
        with pytest.raises(grpc.aio.AioRpcError):
            await anext(aiter(stream))
        assert await gateway.process.wait() == 0
