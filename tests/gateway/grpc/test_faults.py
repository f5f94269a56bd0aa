"""Clients that disconnect, stall, or send invalid messages."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import inference_pb2 as pb
from tests.gateway.grpc_client import Client, code_of, connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

GENERATE = pb.GenerateRequest(model=MODEL_ID, prompt="one two three four five")


async def test_a_cancelled_stream_aborts_the_engine(gateway: Gateway, client: Client) -> None:
    gateway.engine.pause_after = 2
    call = client.inference.GenerateStream(GENERATE, metadata=client.metadata)
    assert (await anext(aiter(call))).text
    await gateway.engine.paused.wait()
    call.cancel()
    assert await gateway.engine.aborted.get() == gateway.engine.submits[0].request_id
    assert await gateway.lifecycle.idle(5)


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_a_call_cancelled_before_the_first_token_aborts_the_engine(
    gateway: Gateway, client: Client, method: str
) -> None:
    gateway.engine.pause_after = 0
    call = getattr(client.inference, method)(GENERATE, metadata=client.metadata)
    await gateway.engine.paused.wait()
    call.cancel()
    assert await gateway.engine.aborted.get() == gateway.engine.submits[0].request_id
    assert await gateway.lifecycle.idle(5)


async def test_a_connection_that_breaks_aborts_the_engine(gateway: Gateway) -> None:
    gateway.engine.pause_after = 0
    async with connected(gateway.grpc_target, gateway.key) as client:
        call = client.inference.Generate(GENERATE, metadata=client.metadata)
        await gateway.engine.paused.wait()
        await client.channel.close(None)
        assert call.cancelled()
    assert await gateway.engine.aborted.get() == gateway.engine.submits[0].request_id


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_a_deadline_reaches_the_engine(gateway: Gateway, client: Client, method: str) -> None:
    gateway.engine.pause_after = 2
    call = getattr(client.inference, method)(GENERATE, metadata=client.metadata, timeout=1)
    ending = call if method == "Generate" else _rest_of(call)
    assert await code_of(ending) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await gateway.engine.aborted.get() == gateway.engine.submits[0].request_id
    assert await gateway.lifecycle.idle(5)


async def _rest_of(call: Any) -> list[Any]:
    return [message async for message in call]


async def test_calls_are_recorded_with_the_status_that_clients_received(
    gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: asyncio.Queue[UsageRecord] = asyncio.Queue()
    monkeypatch.setattr(
        "loragate.gateway.metering.ledger.Ledger.record", lambda self, record, *more: records.put_nowait(record)
    )
    answer = await client.inference.Generate(GENERATE, metadata=(*client.metadata, ("x-request-id", "mine")))
    whole = records.get_nowait()
    assert (whole.request_id, whole.endpoint, whole.outcome) == ("mine", "completions", Outcome.COMPLETED)
    assert (whole.prompt_tokens, whole.completion_tokens) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )

    gateway.engine.pause_after = 2
    call = client.inference.GenerateStream(GENERATE, metadata=client.metadata)
    messages = aiter(call)
    for _ in range(2):
        await anext(messages)
    call.cancel()
    cut = await records.get()
    assert (cut.outcome, cut.completion_tokens) == (Outcome.DISCONNECTED, 2)
    assert cut.prompt_tokens == whole.prompt_tokens


async def test_a_client_that_reads_nothing_is_disconnected(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    engine.manifest.max_model_len = 1_000_000
    engine.script = lambda submit: [5] * 60_000
    short_timeouts = replace(config, stall_seconds=0.3)
    request = pb.GenerateRequest(model=MODEL_ID, prompt="x", max_tokens=60_000)
    async with serving(short_timeouts, engine, tenants) as gateway:
        await gateway.until_ready()
        # The client's library would buffer megabytes that the client does not read.
        async with connected(gateway.grpc_target, gateway.key, **{"http2.bdp_probe": 0}) as client:
            call = client.inference.GenerateStream(request, metadata=client.metadata)
            await engine.aborted.get()
            assert await gateway.lifecycle.idle(5), "nothing of it runs any more"
            assert await code_of(_rest_of(call)) == grpc.StatusCode.CANCELLED


async def test_request_ids(client: Client) -> None:
    for asked, kept in (("my-id.1", True), ("a b<script>", False)):
        call = client.inference.Generate(GENERATE, metadata=(*client.metadata, ("x-request-id", asked)))
        said = dict(await call.initial_metadata())["x-request-id"]
        assert said == asked if kept else said.startswith("req_")
    missing = pb.GenerateRequest(model="missing", prompt="x")
    call = client.inference.Generate(missing, metadata=(*client.metadata, ("x-request-id", "my-id.2")))
    error = await rejection(call)
    assert error.request_id == dict(await call.trailing_metadata())["x-request-id"] == "my-id.2"


async def test_bugs_are_not_disclosed_to_clients(
    gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError(" ".join(["prompt", "and", "key"]))

    monkeypatch.setattr("loragate.gateway.grpc.inference.new_completion_head", broken)
    error = await rejection(client.inference.Generate(GENERATE, metadata=client.metadata))
    assert (error.status, error.code) == (grpc.StatusCode.INTERNAL, "internal_error")
    assert error.request_id in error.message
    assert error.request_id in caplog.text
    assert "prompt and key" not in error.message + caplog.text


async def test_logs_and_metrics_name_methods_and_contain_no_secrets(
    gateway: Gateway, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="loragate")
    await client.inference.Generate(
        pb.GenerateRequest(model=MODEL_ID, prompt="a secret prompt"), metadata=client.metadata
    )
    lines = [record.getMessage() for record in caplog.records if record.name == "loragate.access"]
    method = "/loragate.v1.InferenceService/Generate"
    assert any(f'"route":"{method}"' in line and f'"tenant_id":"{gateway.tenant_id}"' in line for line in lines)
    assert "secret" not in caplog.text
    assert gateway.key not in caplog.text
    async with gateway.admin() as http:
        metrics = (await http.get("/metrics")).text
    assert f'loragate_grpc_calls_total{{method="{method}",status="OK"}} 1.0' in metrics
    assert "loragate_grpc_calls_in_flight 0.0" in metrics
