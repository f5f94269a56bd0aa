"""Stopping a gateway process: drain, deadline, second signal."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.http.lifecycle import Lifecycle
from tests.gateway.gateway_process import connections
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

PROGRAM = """
import gc; gc.disable()  # imports create no garbage
import json, socket, sys
from pathlib import Path
from loragate.engine.runtime.log_format import log_to_stderr

log_to_stderr("json")  # before gRPC is imported, which reads the environment then

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.server import run
from loragate.gateway.config.tracing import TracingConfig

fields = json.loads(sys.argv[2])
fields["secret_key"] = fields["secret_key"].encode()
fields["data_dir"] = Path(fields["data_dir"])
if fields["tracing"] is not None:
    fields["tracing"] = TracingConfig(fields["tracing"])
run(GatewayConfig(**fields), socket.socket(fileno=int(sys.argv[1])))
"""

BODY = {"model": MODEL_ID, "prompt": "one two three", "stream": True}


class Process(Gateway):
    process: asyncio.subprocess.Process

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def until_draining(self) -> None:
        async with self.http() as http:
            while (await http.get("/readyz")).json()["parts"]["gateway"] == "ok":
                await asyncio.sleep(0.02)


@asynccontextmanager
async def process(
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    drain_seconds: float,
    stderr: BinaryIO | None = None,
) -> AsyncIterator[Process]:
    """Its log has the format "json", on the test's stderr by default."""
    sock = socket.create_server(("127.0.0.1", 0))
    sock.set_inheritable(True)
    fields = connections(config) | {
        "grpc_listen": config.grpc_listen,
        "drain_seconds": drain_seconds,
        "tracing": None if config.tracing is None else config.tracing.endpoint,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(sock.fileno()),
        json.dumps(fields),
        pass_fds=[sock.fileno()],
        stderr=stderr,
    )
    base_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    sock.close()
    try:
        target = config.grpc_listen or ""
        running = Process(base_url, config, engine, Lifecycle(), tenants[1], tenants[2], tenants[0], target)
        running.process = child
        await running.until_ready()
        yield running
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_streams_finish_new_requests_are_rejected_exit_is_zero(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    engine.pause_after = 1
    async with process(config, engine, tenants, drain_seconds=30) as gateway, gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=BODY) as response:
            await engine.paused.wait()
            gateway.signal()
            await gateway.until_draining()
            readiness = await http.get("/readyz")
            rejected = await http.post("/v1/completions", json=BODY)
            alive = await http.get("/healthz")
            engine.resume.set()
            text = (await response.aread()).decode()
        assert (readiness.status_code, readiness.json()["parts"]["gateway"]) == (503, "shutting down")
        assert rejected.status_code == 503
        assert rejected.json()["error"]["code"] == "shutting_down"
        assert rejected.headers["retry-after"]
        assert alive.status_code == 200
        assert text.endswith("data: [DONE]\n\n")
        assert await gateway.process.wait() == 0


async def test_the_deadline_ends_streams_with_a_typed_error(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    engine.pause_after = 1
    async with process(config, engine, tenants, drain_seconds=0.2) as gateway, gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=BODY) as response:
            whole = asyncio.create_task(http.post("/v1/completions", json=BODY | {"stream": False}))
            while len(engine.submits) < 2:
                await asyncio.sleep(0.01)
            gateway.signal()
            text = (await response.aread()).decode()
        last = text.strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert "[DONE]" not in text
        assert (await whole).json()["error"]["code"] == "shutting_down"
        assert await gateway.process.wait() == 0
        await engine.aborted.get()


async def test_a_second_signal_ends_at_once(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    engine.pause_after = 1
    async with process(config, engine, tenants, drain_seconds=3600) as gateway, gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=BODY) as response:
            await engine.paused.wait()
            gateway.signal()
            await gateway.until_draining()
            gateway.signal()
            assert "[DONE]" not in (await response.aread()).decode()
        assert await gateway.process.wait() == 0


@pytest.mark.long
async def test_an_idle_gateway_stops(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    async with process(config, engine, tenants, drain_seconds=3600) as gateway:
        gateway.signal()
        assert await gateway.process.wait() == 0
