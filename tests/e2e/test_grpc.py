"""gRPC through the whole server, compared with REST."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from running_server import ok, until

from loragate.v1.inference_pb2 import ChatRequest, GenerateRequest, TokenIds
from loragate.v1.inference_pb2_grpc import InferenceServiceStub

from .test_serving import GREEDY, PROMPT, complete, text_of

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "grpc_chat.py"


@pytest.fixture(scope="module")
def channel(tenants):  # type: ignore[no-untyped-def]
    with grpc.insecure_channel(tenants.server.runtime["grpc_target"]) as channel:
        yield channel


def key_of(tenant: Any) -> tuple[tuple[str, str], ...]:
    return (("authorization", tenant.headers["authorization"]),)


def generate(channel: grpc.Channel, tenant: Any, model: str) -> str:
    fields = {name: value for name, value in GREEDY.items() if name != "prompt"}
    request = GenerateRequest(model=model, prompt_token_ids=[TokenIds(ids=PROMPT)], **fields)
    stub: Any = InferenceServiceStub(channel)
    streamed = "".join(piece.text for piece in stub.GenerateStream(request, metadata=key_of(tenant)))
    whole = stub.Generate(request, metadata=key_of(tenant)).text
    assert streamed == whole
    return str(whole)


def example(tenants: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LORAGATE_API_KEY": tenants.acme_key}
    command = [sys.executable, str(EXAMPLE), tenants.server.runtime["grpc_target"], *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_same_tokens_as_over_rest_and_as_pefts(tenants, tiny, channel) -> None:  # type: ignore[no-untyped-def]
    cases = [(tenants.acme, "a", "a"), (tenants.globex, "a", "d"), (tenants.acme, "tiny-llama", None)] * 3
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda case: generate(channel, case[0], case[1]), cases))
    for (tenant, model, adapter), answer in zip(cases, answers, strict=True):
        assert answer == complete(tenant, model) == text_of(tiny, adapter)


def test_chat_returns_the_same_as_rest(tenants, channel) -> None:  # type: ignore[no-untyped-def]
    body = {"model": "b", "messages": [{"role": "user", "content": "capital of France?"}], "max_tokens": 9}
    rest = ok(tenants.acme.post("/v1/chat/completions", json=body | {"temperature": 0}))
    stub: Any = InferenceServiceStub(channel)
    answer = stub.Chat(ChatRequest(**body, temperature=0), metadata=key_of(tenants.acme))
    assert answer.choices[0].message.content == answer.text == rest["choices"][0]["message"]["content"]
    assert answer.usage.completion_tokens == rest["usage"]["completion_tokens"]
    assert answer.choices[0].finish_reason == rest["choices"][0]["finish_reason"]


@pytest.mark.parametrize("model", ["c", "c:1", "nothing"])
def test_a_foreign_adapter_is_not_found(tenants, channel, model: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(grpc.RpcError) as failed:
        generate(channel, tenants.acme, model)
    assert failed.value.code() == grpc.StatusCode.NOT_FOUND
    assert failed.value.details() == f"The model '{model}' does not exist or you do not have access to it."


def test_a_cancelled_stream_frees_the_engine(tenants, channel) -> None:  # type: ignore[no-untyped-def]
    def running() -> int:
        with tenants.server.admin() as admin:
            return int(ok(admin.get("/admin/v1/engines"))["data"][0]["batch"]["running"])

    request = GenerateRequest(model="a", prompt="x", max_tokens=480, ignore_eos=True)
    stub: Any = InferenceServiceStub(channel)
    call = stub.GenerateStream(request, metadata=key_of(tenants.acme))
    next(call)
    call.cancel()
    until(lambda: running() == 0)


def test_the_example_uploads_and_chats(tenants, tiny) -> None:  # type: ignore[no-untyped-def]
    ran = example(tenants, "by-grpc", "what is the capital of France?", "--upload", str(tiny.adapters["c"]))
    assert ran.returncode == 0, ran.stderr
    assert "uploaded by-grpc:1 (sha256:" in ran.stderr
    assert "answered by by-grpc:1@sha256:" in ran.stderr
    assert ran.stdout
    assert complete(tenants.acme, "by-grpc") == text_of(tiny, "c")


def test_the_example_explains_an_error(tenants) -> None:  # type: ignore[no-untyped-def]
    ran = example(tenants, "missing", "hello")
    assert ran.returncode == 1
    assert "NOT_FOUND: The model 'missing' does not exist" in ran.stderr
    assert "code model_not_found, field model" in ran.stderr


def test_health_needs_no_key(channel) -> None:  # type: ignore[no-untyped-def]
    stub: Any = HealthStub(channel)
    for service in ("", "loragate.v1.InferenceService", "loragate.v1.AdapterService"):
        assert stub.Check(HealthCheckRequest(service=service)).status == HealthCheckResponse.SERVING
