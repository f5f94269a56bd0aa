"""Uploads that reserve disk space and send nothing: they end with 408 and leave nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import adapters_pb2 as pb
from tests.attacks.raw_http import connected, head
from tests.gateway.grpc_client import connected as grpc_connected
from tests.gateway.grpc_client import rejection, rich_error
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

RATE = 100_000  # bytes a second
PIECE = b"x" * 1000
START = b'--b\r\nContent-Disposition: form-data; name="{}"; filename="{}"\r\n\r\n'
_SENT_TOO_LATE = "Internal error from Core"  # what gRPC reports to a client that sends as its call ends
WAYS = {"/v1/adapters": b"adapter_model.safetensors", "/v1/files": b"file"}


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    short_timeouts = replace(
        config, upload_stall_seconds=0.4, min_upload_bytes_per_second=RATE, upload_window_seconds=0.6
    )
    async with serving(short_timeouts, engine, tenants) as running:
        await running.until_ready()
        yield running


def opening(gateway: Gateway, url: str) -> bytes:
    start = head(gateway, url).replace(b"application/json", b"multipart/form-data; boundary=b")
    return start + b"Content-Length: 100000000\r\n\r\n" + START.replace(b"{}", WAYS[url])


@pytest.mark.parametrize("url", WAYS)
async def test_an_upload_that_stops(gateway: Gateway, url: str) -> None:
    async with connected(gateway) as connection:
        await connection.send(opening(gateway, url), PIECE * 2000)
        answer = await connection.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert await gateway.lifecycle.idle(10)
    await gateway.until_nothing_is_spooled()


@pytest.mark.parametrize("url", WAYS)
@pytest.mark.parametrize("ahead", [0, 5000])
async def test_an_upload_that_trickles(gateway: Gateway, url: str, ahead: int) -> None:
    """It never stops, but is too slow; its fast start gains it no time."""
    async with connected(gateway) as connection:
        await connection.send(opening(gateway, url), PIECE * ahead)
        dripping = asyncio.create_task(_drip(connection.writer))
        answer = await connection.answer()
        dripping.cancel()
    assert (answer.status, answer.code) == (408, "request_timeout")
    await gateway.until_nothing_is_spooled()


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(PIECE)
        await asyncio.sleep(0.1)  # a tenth of the rate


async def test_an_upload_just_above_the_minimum_rate(gateway: Gateway) -> None:
    """Above the rate for longer than the window: it is read to its end."""
    whole = START.replace(b"{}", b"file") + PIECE * 200 + b"\r\n--b--\r\n"
    start = head(gateway, "/v1/files").replace(b"application/json", b"multipart/form-data; boundary=b")
    async with connected(gateway) as connection:
        await connection.send(start + b"Content-Length: %d\r\n\r\n" % len(whole))
        for at in range(0, len(whole), 20_000):
            await connection.send(whole[at : at + 20_000])
            await asyncio.sleep(0.1)
        answer = await connection.answer()
    assert answer.status == 400, "it lacks its purpose"
    assert b"purpose" in answer.body


@pytest.mark.parametrize("pause", [None, 0.1])
async def test_over_grpc(gateway: Gateway, pause: float | None) -> None:
    async def messages() -> AsyncIterator[pb.UploadRequest]:
        yield pb.UploadRequest(name="a", adapter_model=PIECE)
        while pause is not None:
            await asyncio.sleep(pause)
            yield pb.UploadRequest(adapter_model=PIECE)
        await asyncio.Event().wait()

    async with grpc_connected(gateway.grpc_target, gateway.key) as client:
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await client.adapters.Upload(messages(), metadata=client.metadata)
            if failed.value.details() != _SENT_TOO_LATE:
                break
    assert rich_error(failed.value).code == "request_timeout"
    await gateway.until_nothing_is_spooled()


@pytest.fixture
async def patient(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    """A gateway that waits long for slow uploads, and accepts two concurrent uploads of a tenant."""
    async with serving(replace(config, upload_stall_seconds=60), engine, tenants) as running:
        await running.until_ready()
        assert running.services is not None
        running.services.upload_limiter._max_uploads = 2
        yield running


async def test_slow_uploads_of_one_tenant_are_bounded_and_do_not_affect_others(patient: Gateway) -> None:
    uploads = patient.services.upload_limiter if patient.services else None
    assert uploads is not None
    async with patient.http() as http, patient.http(patient.other_key) as other:
        async with connected(patient) as one, connected(patient) as two:
            for connection, url in ((one, "/v1/adapters"), (two, "/v1/files")):
                await connection.send(opening(patient, url), PIECE)
            async with asyncio.timeout(30):
                while uploads._taken[patient.tenant_id] < 2:
                    await asyncio.sleep(0.01)
            form = {"data": {"purpose": "adapter"}, "files": {"file": b"x"}}
            rejected = await http.post("/v1/files", **form)
            assert (rejected.status_code, rejected.json()["error"]["code"]) == (429, "too_many_uploads")
            assert "retry-after" in rejected.headers
            async with grpc_connected(patient.grpc_target, patient.key) as client:
                reported = await rejection(
                    client.adapters.Upload(iter([pb.UploadRequest(name="a")]), metadata=client.metadata)
                )
            assert reported.code == "too_many_uploads"
            assert (await other.post("/v1/files", **form)).status_code == 200
        async with asyncio.timeout(30):
            while uploads._taken:
                await asyncio.sleep(0.01)
        assert (await http.post("/v1/files", **form)).status_code == 200
