"""Clients that disconnect and engines that die."""

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import APIError, InternalServerError

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

MESSAGES = [{"role": "user", "content": "A question about stars"}]
STREAM = {"model": MODEL_ID, "messages": MESSAGES, "stream": True}


async def _first_piece(response: Any) -> str:
    async for line in response.aiter_lines():
        if '"content":"' in line and '"content":""' not in line:
            return line
    raise AssertionError("the stream ended without text")


async def test_a_client_that_leaves_a_stream_aborts_the_engine(gateway: Gateway) -> None:
    gateway.engine.pause_after = 3
    async with gateway.http() as http:
        async with http.stream("POST", "/v1/chat/completions", json=STREAM) as response:
            await _first_piece(response)
        request_id = await gateway.engine.aborted.get()
    assert request_id == gateway.engine.submits[0].request_id


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_token(gateway: Gateway, stream: bool) -> None:
    gateway.engine.pause_after = 0
    async with gateway.http() as http:
        request = asyncio.create_task(http.post("/v1/chat/completions", json=STREAM | {"stream": stream}))
        await gateway.engine.paused.wait()
        request.cancel()
        assert await gateway.engine.aborted.get() == gateway.engine.submits[0].request_id
    assert await gateway.lifecycle.idle(5)


async def test_a_client_that_leaves_a_batch_aborts_all_of_it(gateway: Gateway) -> None:
    gateway.engine.pause_after = 1
    body = {"model": MODEL_ID, "prompt": ["one two", "three four", "five six"]}
    async with gateway.http() as http:
        request = asyncio.create_task(http.post("/v1/completions", json=body))
        while len(gateway.engine.submits) < 3:
            await asyncio.sleep(0.01)
        await gateway.engine.paused.wait()
        request.cancel()
        aborted = {await gateway.engine.aborted.get() for _ in range(3)}
    assert aborted == {submit.request_id for submit in gateway.engine.submits}


@pytest.mark.long
async def test_a_client_that_reads_nothing_is_disconnected(small_gateway: Gateway) -> None:
    engine = small_gateway.engine
    engine.manifest.max_model_len = 1_000_000
    await engine.kill()
    await engine.start()
    host, port = small_gateway.base_url.removeprefix("http://").split(":")
    await _until_base_model(small_gateway, 1_000_000)
    engine.script = lambda submit: [5] * 60_000  # more than the kernel buffers for a client with a small buffer
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, (host, int(port)))
    _, writer = await asyncio.open_connection(sock=narrow, limit=1024)
    body = json.dumps({"model": MODEL_ID, "prompt": "x", "max_tokens": 60_000, "stream": True})
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {small_gateway.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    try:
        await engine.aborted.get()
    finally:
        writer.transport.abort()


async def _until_base_model(gateway: Gateway, max_model_len: int) -> None:
    """Wait until the gateway has read the manifest of an engine that came back."""
    async with gateway.http() as http:
        body = {"model": MODEL_ID, "prompt": "x", "max_tokens": max_model_len - 10}
        gateway.engine.respond_with("x")
        while (await http.post("/v1/completions", json=body)).status_code != 200:
            await asyncio.sleep(0.02)


async def test_an_engine_killed_during_a_stream(gateway: Gateway) -> None:
    gateway.engine.pause_after = 3
    async with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        async for line in lines:
            if line:
                break
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        rest = [line async for line in lines if line]
    error = json.loads(rest[-1].removeprefix("data: "))["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == "engine_unavailable"
    assert "data: [DONE]" not in rest


async def test_an_engine_killed_under_the_official_client(gateway: Gateway) -> None:
    gateway.engine.pause_after = 3
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, stream=True)
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        with pytest.raises(APIError) as failed:
            async for _ in stream:
                pass
    assert failed.value.code == "engine_unavailable"


async def test_an_engine_that_stops_and_comes_back(gateway: Gateway) -> None:
    gateway.engine.pause_after = 2
    async with gateway.openai() as client, gateway.http() as http:
        request = asyncio.create_task(client.chat.completions.create(model=MODEL_ID, messages=MESSAGES))
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        with pytest.raises(InternalServerError) as during:
            await request
        with pytest.raises(InternalServerError) as down:
            await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES)
        for failed in (during.value, down.value):
            assert failed.status_code == 503
            assert failed.code == "engine_unavailable"
            assert int(failed.response.headers["retry-after"]) >= 1
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["parts"]["engine"] == "not connected"
        assert ready.json()["parts"]["database"] == "ok"
        assert (await http.get("/healthz")).status_code == 200

        gateway.engine.pause_after = None
        await gateway.engine.start()
        await gateway.until_ready()
        answer = await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES)
    assert answer.choices[0].finish_reason == "stop"


async def test_an_engine_that_hangs(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    short_timeouts = replace(config, heartbeat_timeout=3.0)
    engine.pause_after = 3
    async with serving(short_timeouts, engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json=STREAM) as response:
            await engine.paused.wait()
            engine.hanging = True
            text = (await response.aread()).decode()
    assert '"engine_unavailable"' in text
    assert "[DONE]" not in text


@pytest.mark.parametrize("stream", [True, False])
async def test_overload_responses_say_whose_queue_and_when_to_retry(gateway: Gateway, stream: bool) -> None:
    engine = gateway.engine
    engine.fails = lambda submit: True
    body = {"model": MODEL_ID, "messages": MESSAGES, "stream": stream}
    for own, status, type_ in ((True, 429, "rate_limit_error"), (False, 503, "server_error")):
        engine.failure = pb.EngineError(
            code=pb.ERROR_CODE_OVERLOADED, message="it is so", retry_after_ms=2300, own_queue=own
        )
        async with gateway.http() as http:
            response = await http.post("/v1/chat/completions", json=body)
        assert response.status_code == status
        assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("5", "5000"), "in steps"
        error = response.json()["error"]
        assert (error["type"], error["code"], error["param"]) == (type_, "overloaded", None)
        assert "it is so" in error["message"]


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [
        (pb.ERROR_CODE_INVALID_REQUEST, 400, None),
        (pb.ERROR_CODE_ADAPTER_UNAVAILABLE, 503, "adapter_unavailable"),
        (pb.ERROR_CODE_OVERLOADED, 503, "overloaded"),
        (pb.ERROR_CODE_NON_FINITE, 500, "non_finite_output"),
        (pb.ERROR_CODE_INTERNAL, 500, "generation_failed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_errors_of_the_engine(
    gateway: Gateway, code: "pb.ErrorCode.ValueType", status: int, name: str | None, stream: bool
) -> None:
    """Before the first token a stream fails like any other request."""
    gateway.engine.failure = pb.EngineError(code=code, message="it is so")
    gateway.engine.fails = lambda submit: True
    async with gateway.openai() as client:
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, stream=stream)
    assert (failed.value.status_code, failed.value.code) == (status, name)


async def test_one_prompt_of_a_batch_fails(gateway: Gateway) -> None:
    """The others are aborted."""
    engine = gateway.engine
    good, bad = ([engine.tokenizer.encode(text).ids] for text in ("one two", "three four"))
    engine.pause_after = 1
    engine.fails = lambda submit: list(submit.prompt_token_ids) == bad[0]
    async with gateway.http() as http:
        response = await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": good + good + bad})
    assert response.status_code == 500
    assert {await engine.aborted.get() for _ in range(2)} == {
        submit.request_id for submit in engine.submits if list(submit.prompt_token_ids) == good[0]
    }


async def test_bugs_are_not_disclosed_to_clients(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError(" ".join(["prompt", "and", "key"]))

    monkeypatch.setattr("loragate.gateway.routes.inference.completions.new_completion_head", broken)
    async with gateway.http() as http:
        response = await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "x"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, "internal_error")
    assert response.headers["x-request-id"] in error["message"]
    assert "prompt and key" not in response.text + caplog.text
    assert response.headers["x-request-id"] in caplog.text


async def test_no_engine_was_ever_connected(
    config: Any, engine: StubEngine, tenants: tuple[str, str, str], tmp_path: Path
) -> None:
    await engine.kill()
    folder = tiny_model.write_adapter(tmp_path / "a")
    files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
    async with serving(config, engine, tenants) as gateway, gateway.http() as http:
        for response in (
            await http.post("/v1/adapters", data={"name": "a"}, files=files),
            await http.post("/v1/chat/completions", json=STREAM),
            await http.get("/v1/models"),
        ):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "base_model_unknown"
            assert response.headers["retry-after"]


async def test_without_the_engine_checks_continue_and_uploads_wait(
    gateway: Gateway, upload: Any, tmp_path: Path
) -> None:
    await upload("poet")
    await gateway.engine.kill()
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(tmp_path / "a").iterdir()}
    async with gateway.http() as http:
        wrong = await http.post("/v1/adapters", data={"name": "a"}, files=files | {"adapter_config.json": b"{}"})
        right = await http.post("/v1/adapters", data={"name": "a"}, files=files)
    assert wrong.status_code == 400
    assert (right.status_code, right.json()["status"]) == (201, "verifying")
    async with gateway.openai() as client:
        with pytest.raises(openai.BadRequestError):
            await client.completions.create(model="poet", prompt="x" * 10_000)


async def test_the_stored_base_model_survives_a_restart(
    config: Any, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(config, engine, tenants) as first:
        await first.until_ready()
    await engine.kill()
    async with serving(config, engine, tenants) as second, second.openai() as client:
        assert [model.id async for model in client.models.list()] == [MODEL_ID]


async def test_a_model_without_a_chat_template(config: Any, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    engine.manifest.chat_template = ""
    async with serving(config, engine, tenants) as gateway, gateway.openai() as client:
        await gateway.until_ready()
        with pytest.raises(openai.BadRequestError) as rejected:
            await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES)
        assert rejected.value.code == "no_chat_template"
        assert (await client.completions.create(model=MODEL_ID, prompt="x")).choices[0].text == "x"
