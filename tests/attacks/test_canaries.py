"""Clients' text goes to the engine and back, and not into any log, trace, metric or file.

A gateway process is sent canaries wherever a client can write something, over REST and gRPC, in requests that succeed
and in requests that fail in every known way. Then it is killed, and all that it left behind is searched.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from otlp_collector import Collector, otlp_collector
from safetensors.numpy import save_file

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.tracing import TracingConfig
from loragate.v1 import engine_pb2 as pb
from loragate.v1.adapters_pb2 import GetAdapterRequest
from loragate.v1.inference_pb2 import ChatMessage, ChatRequest, GenerateRequest
from tests.gateway import tiny_model
from tests.gateway.grpc_client import Client, connected
from tests.gateway.http.test_drain import Process, process
from tests.gateway.stub_engine import StubEngine

MARK = "zqcanary"
MODEL = tiny_model.MODEL_ID
TOOL = {"name": f"{MARK}_tool", "description": f"{MARK}-description", "parameters": {"title": f"{MARK}-parameters"}}
HEADERS = {
    "x-request-id": f"{MARK} is no id",
    "user-agent": f"{MARK}-agent",
    "cookie": f"session={MARK}-cookie",
    "tracestate": f"vendor={MARK}-state",
    "baggage": f"user={MARK}-baggage",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "x-forwarded-for": f"{MARK}-forwarded",
    "referer": f"http://{MARK}-referer/",
}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with otlp_collector() as running:
        yield running


async def test_clients_text_is_stored_nowhere(
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    collector: Collector,
    tmp_path: Path,
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    private = replace(
        config,
        data_dir=data,
        grpc_listen=engine.target.replace("engine", "gateway"),
        tracing=TracingConfig(collector.endpoint),
    )
    with log.open("wb") as stderr:
        async with process(private, engine, tenants, drain_seconds=1, stderr=stderr) as gateway:
            async with gateway.http() as http, connected(gateway.grpc_target, gateway.key) as client:
                await _good_requests(http, client, engine)
                await _bad_requests(http, client)
                await _uploads(http, tmp_path)
                await _strangers(gateway)
                await _failures(http, client, engine)
                metrics = [(await http.get("/metrics")).content]
            async with gateway.admin() as admin:
                await _operator(admin)
                metrics.append((await admin.get("/metrics")).content)
            await asyncio.to_thread(collector.until, lambda spans: len(spans) > 100)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line["logger"] == "loragate.access" for line in lines) > 60, "the log is there, a JSON object a line"
    files = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert any(gateway.tenant_id.encode() in content for content in files.values()), "usage is there, and is searched"
    assert all(b"loragate_http_requests_total" in page for page in metrics)
    for where, content in {"log": log.read_bytes(), **files, **dict(enumerate(metrics + collector.raw))}.items():
        found = content.lower().find(MARK.encode())
        assert found < 0, f"{where}: {content[max(0, found - 200) : found + 100]!r}"
    for secret in (gateway.key, gateway.other_key):
        assert secret.split("-")[2] not in log.read_text()


async def _good_requests(http: httpx.AsyncClient, client: Client, engine: StubEngine) -> None:
    engine.respond_with(f"{MARK}-answer")
    message = {"role": "user", "name": f"{MARK}_name", "content": f"{MARK}-content"}
    chat = {"model": MODEL, "messages": [message], "max_tokens": 40, "user": f"{MARK}-user"}
    text = {"model": MODEL, "prompt": f"{MARK}-prompt", "max_tokens": 40, "stop": [f"{MARK}-answ"]}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", chat | {"stream": True}),
        ("/v1/chat/completions", chat | {"tools": [{"type": "function", "function": TOOL}]}),
        ("/v1/chat/completions", chat | {"metadata": {f"{MARK}-key": f"{MARK}-value"}}),
        ("/v1/completions", text),
        ("/v1/completions", text | {"stream": True, "echo": True}),
        ("/v1/embeddings", {"model": MODEL, "input": [f"{MARK}-input"]}),
    ]
    good = 0
    for path, body in asked:
        answer = await http.post(path, json=body, headers=HEADERS)
        good += answer.status_code == 200
    assert good >= 5
    engine.respond_with(f'{{"name": "{MARK}_tool", "arguments": {{"q": "{MARK}-argument"}}}}')
    await http.post("/v1/chat/completions", json=asked[2][1])

    metadata = (*client.metadata, ("x-canary", f"{MARK}-metadata"), ("traceparent", HEADERS["traceparent"]))
    said = ChatMessage(role="user", content=f"{MARK}-content")
    assert (await client.inference.Chat(ChatRequest(model=MODEL, messages=[said]), metadata=metadata)).text
    prompt = GenerateRequest(model=MODEL, prompt=f"{MARK}-prompt", max_tokens=5)
    assert [piece async for piece in client.inference.GenerateStream(prompt, metadata=metadata)]


async def _bad_requests(http: httpx.AsyncClient, client: Client) -> None:
    """Each is rejected; the error may quote the client's own text."""
    chat = {"model": MODEL, "messages": [{"role": "user", "content": f"{MARK}-content"}]}
    bodies: list[Any] = [
        chat | {"model": f"{MARK}-model"},
        chat | {"model": f"{MARK}:7"},
        chat | {f"{MARK}-field": 1},
        chat | {"temperature": f"{MARK}-temperature"},
        chat | {"messages": [{"role": f"{MARK}-role", "content": "x"}]},
        chat | {"messages": f"{MARK}-messages"},
        chat | {"tool_choice": {"type": "function", "function": {"name": f"{MARK}-choice"}}},
        chat | {"tools": [{"type": "function", "function": {"name": f"{MARK} no name"}}]},
        chat | {"response_format": {"type": "json_schema", "json_schema": {"name": MARK, "schema": MARK}}},
        chat | {"logit_bias": {f"{MARK}": 1}},
        chat | {"n": f"{MARK}"},
        chat | {"messages": [{"role": "user", "content": [{"type": f"{MARK}-part"}]}]},
        [MARK],
        MARK,
    ]
    for body in bodies:
        assert (await http.post("/v1/chat/completions", json=body, headers=HEADERS)).status_code >= 400, body
    raw: list[tuple[bytes, str]] = [
        (b'{"model": "' + MARK.encode(), "application/json"),
        (MARK.encode(), "application/json"),
        (b"\xff\xfe" + MARK.encode(), "application/json"),
        (b'{"' + MARK.encode() + b'":' * 1 + b"[" * 5000, "application/json"),
        (MARK.encode(), f"text/{MARK}"),
        (MARK.encode() * 10, f"multipart/form-data; boundary={MARK}"),
    ]
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/adapters"):
        for content, kind in raw:
            answer = await http.post(path, content=content, headers={"content-type": kind})
            assert answer.status_code >= 400
    for method, path in (
        ("GET", f"/v1/{MARK}/path?{MARK}=query"),
        ("GET", f"/v1/adapters/{MARK}"),
        ("GET", f"/v1/models/{MARK}"),
        ("GET", f"/v1/usage?group_by={MARK}"),
        ("PUT", f"/v1/adapters/{MARK}/aliases/{MARK}"),
        ("DELETE", f"/v1/adapters/{MARK}/versions/{MARK}"),
        (MARK.upper(), "/v1/models"),
        ("GET", f"/admin/v1/tenants/{MARK}"),
    ):
        assert (await http.request(method, path, json={MARK: MARK})).status_code >= 400

    generate = "/loragate.v1.InferenceService/Generate"
    prompt = f"{MARK}-prompt"
    malformed = MARK.encode()
    unknown = GenerateRequest(model=f"{MARK}-model", prompt=prompt).SerializeToString()
    bad = ChatRequest(model=MODEL, messages=[ChatMessage(role=MARK, content=MARK)]).SerializeToString()
    for method, message in (
        (generate, malformed),
        (generate, unknown),
        ("/loragate.v1.InferenceService/Chat", bad),
        ("/loragate.v1.AdapterService/Get", GetAdapterRequest(name=MARK).SerializeToString()),
        ("/loragate.v1.AdapterService/Upload", malformed),
        (f"/loragate.v1.{MARK}/Generate", malformed),
        ("/grpc.health.v1.Health/Check", malformed),
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await client.raw(method, message)


async def _uploads(http: httpx.AsyncClient, tmp_path: Path) -> None:
    """One is accepted; it is stored as a blob, which is not searched."""
    folder = tiny_model.write_adapter(tmp_path / "adapter")
    config, tensors = (folder / "adapter_config.json"), (folder / "adapter_model.safetensors")
    marked = json.loads(config.read_text()) | {"revision": f"{MARK}-revision"}
    bad_tensors = tmp_path / "bad.safetensors"
    save_file({f"{MARK}.tensor": np.full((2, 2), np.nan, np.float32)}, bad_tensors, {"note": f"{MARK}-note"})
    weights = tensors.read_bytes()
    attempts: list[tuple[str, bytes, bytes]] = [
        ("good", json.dumps(marked).encode(), weights),
        (f"{MARK} bad name", json.dumps(marked).encode(), weights),
        ("a", json.dumps(marked | {"peft_type": MARK}).encode(), weights),
        ("b", json.dumps(marked | {"target_modules": f"({MARK}+)+$"}).encode(), weights),
        ("c", MARK.encode(), weights),
        ("d", json.dumps(marked).encode(), bad_tensors.read_bytes()),
        ("e", json.dumps(marked).encode(), MARK.encode()),
        ("f", json.dumps(marked).encode(), weights[:-20] + MARK.encode()),
    ]
    statuses = []
    for name, first, second in attempts:
        files = {
            "adapter_config.json": (f"../{MARK}.json", first),
            "adapter_model.safetensors": (f"{MARK}/../../x", second),
        }
        headers = {"idempotency-key": f"{MARK}-idempotency-{name}".replace(" ", "-")}
        answer = await http.post("/v1/adapters", data={"name": name, MARK: MARK}, files=files, headers=headers)
        statuses.append(answer.status_code)
        answer = await http.post("/v1/adapters", data={"name": name}, files=files, headers=headers)
        statuses.append(answer.status_code)
    assert 201 in statuses
    assert sum(status >= 400 for status in statuses) >= 7


async def _strangers(gateway: Process) -> None:
    """Invalid keys."""
    for key in (f"lg-{MARK}-{MARK}", f"lg-{MARK}", f"sk-{MARK}"):
        async with gateway.http(key) as http:
            for path in ("/v1/models", "/metrics", "/admin/v1/audit"):
                assert (await http.get(path)).status_code == 401
        async with connected(gateway.grpc_target, key) as client:
            with pytest.raises(grpc.aio.AioRpcError):
                await client.inference.Generate(GenerateRequest(model=MODEL, prompt=MARK), metadata=client.metadata)
    async with httpx.AsyncClient(base_url=gateway.base_url) as http:
        for value in (MARK, f"Basic {MARK}", f"Bearer {MARK} {MARK}", "Bearer " + MARK * 2000):
            assert (await http.get("/v1/models", headers={"authorization": value})).status_code in (401, 431)
    reader, writer = await asyncio.open_connection(*gateway.base_url.removeprefix("http://").split(":"))
    writer.write(f"{MARK} {MARK} HTTP/9\r\n{MARK}\r\n\r\n".encode())
    await reader.read()
    writer.close()


async def _failures(http: httpx.AsyncClient, client: Client, engine: StubEngine) -> None:
    """The engine's own errors, which may quote the request; clients that disconnect; an engine that dies."""
    body = {"model": MODEL, "prompt": f"{MARK}-prompt", "max_tokens": 9}
    request = GenerateRequest(**body)
    engine.fails = lambda submit: True
    for code in pb.ErrorCode.values():
        engine.failure = pb.EngineError(code=code, message=f"{MARK}-message")
        assert (await http.post("/v1/completions", json=body)).status_code >= 400
        assert (await http.post("/v1/completions", json=body | {"stream": True})).status_code >= 400
        with pytest.raises(grpc.aio.AioRpcError):
            await client.inference.Generate(request, metadata=client.metadata)
    engine.fails = lambda submit: False
    engine.respond_with(f"{MARK} one two three four")
    engine.pause_after = 2
    async with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as stream:
        await engine.paused.wait()
        await anext(stream.aiter_lines())
    call = client.inference.GenerateStream(request, metadata=client.metadata)
    await anext(aiter(call))
    call.cancel()
    dying = asyncio.create_task(http.post("/v1/completions", json=body))
    submitted = len(engine.submits)
    while len(engine.submits) == submitted:
        await asyncio.sleep(0.01)
    await engine.kill()
    assert (await dying).status_code == 503
    with suppress(grpc.aio.AioRpcError):
        await client.inference.Generate(request, metadata=client.metadata)


async def _operator(admin: httpx.AsyncClient) -> None:
    """Send bad bodies as an administrator; good ones are in the database and the audit log, where they belong."""
    for body in ({"name": [MARK]}, {"name": "x", MARK: 1}, {"name": "x", "weight": MARK}, MARK):
        assert (await admin.post("/admin/v1/tenants", json=body)).status_code >= 400
    assert (await admin.get(f"/admin/v1/audit?since={MARK}")).status_code >= 400
