"""An engine that is silent for a while: held up, stopped, or not heard because the client itself was held up."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.grpc_client import GrpcEngineClient
from loragate.engine.client.session import AdapterBytes
from loragate.v1 import engine_pb2 as pb

# A request's first token comes at once, its second one after no Python thread could run for this many seconds.
ENGINE = """
import asyncio, ctypes, sys
import grpc.aio
from loragate.engine.client.channel_options import SERVER_OPTIONS
from loragate.v1 import engine_pb2 as pb, engine_pb2_grpc as pb_grpc

class Engine(pb_grpc.EngineServiceServicer):
    async def Session(self, frames, context):
        yield pb.EngineFrame(heartbeat=pb.Heartbeat())
        async for frame in frames:
            if frame.HasField("submit"):
                delta = pb.Delta(request_id=frame.submit.request_id, token_ids=[1])
                yield pb.EngineFrame(step=pb.StepOutput(deltas=[delta]))
                ctypes.PyDLL(None).sleep(frame.submit.sampling.max_tokens)
                delta.finish_reason = pb.FINISH_REASON_LENGTH
                yield pb.EngineFrame(step=pb.StepOutput(deltas=[delta]))

async def main():
    server = grpc.aio.server(options=SERVER_OPTIONS)
    pb_grpc.add_EngineServiceServicer_to_server(Engine(), server)
    server.add_insecure_port(sys.argv[1])
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""


class NoAdapters:
    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        raise LookupError


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ENGINE, f"unix:{tmp_path}/engine.sock")
    yield process
    process.kill()
    await process.wait()


@pytest.fixture
async def client(engine: asyncio.subprocess.Process, tmp_path: Path) -> AsyncIterator[GrpcEngineClient]:
    client = GrpcEngineClient(f"unix:{tmp_path}/engine.sock", NoAdapters(), heartbeat_timeout=3600.0)
    await client.start()
    while not client.ready:
        await asyncio.sleep(0.02)
    yield client
    await client.close()


def request(seconds: int) -> pb.Submit:
    return pb.Submit(prompt_token_ids=[1], sampling=pb.Sampling(max_tokens=seconds))


async def test_an_engine_that_is_held_up_keeps_its_requests(client: GrpcEngineClient) -> None:
    """The engine is held up for longer than a ping may take: gRPC answers pings without the interpreter."""
    async with client.generate(request(seconds=6)) as deltas:
        assert len([delta async for delta in deltas]) == 2


async def test_a_stopped_engine_is_detected(client: GrpcEngineClient, engine: asyncio.subprocess.Process) -> None:
    async with client.generate(request(seconds=1)) as deltas:
        await anext(deltas)
        os.kill(engine.pid, signal.SIGSTOP)
        with pytest.raises(EngineUnavailable):
            async for _ in deltas:
                pass


async def test_a_hanging_interpreter_is_detected_eventually(
    engine: asyncio.subprocess.Process, client: GrpcEngineClient, tmp_path: Path
) -> None:
    short_timeouts = GrpcEngineClient(f"unix:{tmp_path}/engine.sock", NoAdapters(), heartbeat_timeout=1.0)
    await short_timeouts.start()
    while not short_timeouts.ready:
        await asyncio.sleep(0.02)
    async with short_timeouts.generate(request(seconds=60)) as deltas:
        await anext(deltas)
        with pytest.raises(EngineUnavailable):
            async for _ in deltas:
                pass
    await short_timeouts.close()


async def test_a_client_that_was_held_up_does_not_report_the_engine_lost(
    engine: asyncio.subprocess.Process, client: GrpcEngineClient, tmp_path: Path
) -> None:
    hasty = GrpcEngineClient(f"unix:{tmp_path}/engine.sock", NoAdapters(), heartbeat_timeout=2.0)
    await hasty.start()
    while not hasty.ready:
        await asyncio.sleep(0.02)
    async with hasty.generate(request(seconds=1)) as deltas:
        await anext(deltas)
        time.sleep(3)
        assert (await anext(deltas)).finish_reason == pb.FINISH_REASON_LENGTH
    await hasty.close()
