"""Responses and stream events in the official client's own types, without a field too few or too many."""

import json
from typing import Any

import pytest
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, TypeAdapter

from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CHAT: dict[str, Any] = {"model": MODEL_ID, "messages": [{"role": "user", "content": "What is the weather?"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 1024, "chat_template": tiny_model.TOOLS_TEMPLATE}


def read(shape: type[BaseModel], document: Any, *ours: str) -> Any:
    """Return `document` as the client's type. `ours` are fields that OpenAI does not have."""
    parsed = TypeAdapter(shape).validate_json(json.dumps(document), strict=True)
    assert _unknown(parsed) <= set(ours)
    return parsed


def _unknown(value: Any) -> set[str]:
    if isinstance(value, BaseModel):
        inner = [getattr(value, name) for name in type(value).model_fields]
        return set(value.model_extra or ()).union(*map(_unknown, inner))
    return set[str]().union(*map(_unknown, value)) if isinstance(value, list) else set()


async def events(gateway: Gateway, path: str, body: dict[str, Any]) -> list[Any]:
    async with gateway.http() as http:
        response = await http.post(path, json=body)
    *lines, done = response.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


CHATS: list[dict[str, Any]] = [
    {},
    {"n": 2, "logprobs": True, "top_logprobs": 2},
    {"tools": TOOLS, "said": CALL},
    {"tools": TOOLS, "said": f"Let me see. {CALL}", "logprobs": True},
    {"max_tokens": 1},
]


async def test_chat(gateway: Gateway) -> None:
    for fields in CHATS:
        await check_chat(gateway, fields)


async def check_chat(gateway: Gateway, fields: dict[str, Any]) -> None:
    fields = dict(fields)
    gateway.engine.respond_with(fields.pop("said", "It is fine."))
    async with gateway.http() as http:
        answered = (await http.post("/v1/chat/completions", json=CHAT | fields)).json()
    whole = read(ChatCompletion, answered)
    chunks = [
        read(ChatCompletionChunk, event)
        for event in await events(gateway, "/v1/chat/completions", CHAT | fields | USAGE)
    ]
    assert chunks[-1].usage == whole.usage
    assert not chunks[-1].choices
    assert len({chunk.id for chunk in chunks}) == 1
    for choice in whole.choices:
        own = [each for chunk in chunks for each in chunk.choices if each.index == choice.index]
        assert "".join(each.delta.content or "" for each in own) == (choice.message.content or "")
        assert own[0].delta.role == "assistant"
        assert [each.finish_reason for each in own] == [None] * (len(own) - 1) + [choice.finish_reason]
        called = [call for each in own for call in each.delta.tool_calls or []]
        assert bool(called) == ("tools" in fields) == bool(choice.message.tool_calls)


@pytest.mark.parametrize("fields", [{}, {"n": 2, "logprobs": 3}, {"prompt": ["a", "b"], "echo": True}])
async def test_completions(gateway: Gateway, fields: dict[str, Any]) -> None:
    body = {"model": MODEL_ID, "prompt": "The sea", **fields}
    async with gateway.http() as http:
        whole = read(Completion, (await http.post("/v1/completions", json=body)).json())
    # OpenAI sends null here until the end; the client's type does not allow that.
    chunks = [
        read(Completion, event | {"choices": [each | {"finish_reason": "stop"} for each in event["choices"]]})
        for event in await events(gateway, "/v1/completions", body | USAGE)
    ]
    assert chunks[-1].usage == whole.usage
    for choice in whole.choices:
        own = [each for chunk in chunks for each in chunk.choices if each.index == choice.index]
        assert "".join(each.text for each in own) == choice.text


async def test_embeddings_and_models(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    async with gateway.http() as http:
        for encoding in ("float", "base64"):
            body = {"model": "poet", "input": ["a", "b"], "encoding_format": encoding}
            answer = (await http.post("/v1/embeddings", json=body)).json()
            if encoding == "base64":  # which the client decodes before it has its type
                answer["data"] = [each | {"embedding": [0.0]} for each in answer["data"]]
            assert [each.index for each in read(CreateEmbeddingResponse, answer).data] == [0, 1]
        listed = (await http.get("/v1/models")).json()
        assert listed.keys() == {"object", "data"}
        models = [read(Model, each, "parent") for each in listed["data"]]
        assert [model.id for model in models] == [MODEL_ID, "poet"]
        read(Model, (await http.get("/v1/models/poet:1")).json(), "parent")


async def test_invalid_cursors_are_rejected_by_name(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    async with gateway.http() as http:
        for path in ("/v1/adapters", "/v1/adapters/poet/versions", "/v1/usage"):
            for query in ("after=nothing", "limit=0", "limit=many", "limit=100000"):
                response = await http.get(f"{path}?{query}")
                assert response.status_code == 400
                assert response.json()["error"]["param"] == query.partition("=")[0]
                assert response.json()["error"]["type"] == "invalid_request_error"
