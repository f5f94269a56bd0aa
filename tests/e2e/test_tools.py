"""Forced calls, end to end: even a random model that was never trained on tools calls them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from running_server import ok

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "name": {"type": "string", "maxLength": 6},
    },
    "required": ["city", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
NAMED = {"type": "function", "function": {"name": "weather"}}
BODY = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "temperature": 1.5,
    "top_p": 1,
}


def chat(tenant: httpx.Client, **fields: Any) -> Any:
    return ok(tenant.post("/v1/chat/completions", json=BODY | fields))


def check(call: dict[str, Any]) -> None:
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weather":
        jsonschema.validate(arguments, SCHEMA)
    else:
        assert call["function"]["name"] == "now"
        assert arguments == {}


@pytest.mark.parametrize("model", ["tiny-llama", "a"])
def test_every_response_is_a_call(tenants, model: str) -> None:  # type: ignore[no-untyped-def]
    answer = chat(tenants.acme, model=model, n=8, seed=5)
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        check(call)


def test_a_named_function_is_the_one_called(tenants) -> None:  # type: ignore[no-untyped-def]
    for choice in chat(tenants.acme, model="b", n=4, tool_choice=NAMED)["choices"]:
        assert choice["finish_reason"] == "stop"
        assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["weather"]
        check(choice["message"]["tool_calls"][0])


def test_forced_and_free_requests_share_a_batch(tenants) -> None:  # type: ignore[no-untyped-def]
    free = {"tools": [], "tool_choice": None, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    alone = chat(tenants.globex, model="c", **free)["choices"][0]["message"]["content"]
    with ThreadPoolExecutor(12) as pool:
        forced = [pool.submit(chat, tenants.acme, model="ab"[i % 2], seed=i) for i in range(6)]
        others = [pool.submit(chat, tenants.globex, model="c", **free) for _ in range(6)]
    for each in forced:
        check(each.result()["choices"][0]["message"]["tool_calls"][0])
    assert {each.result()["choices"][0]["message"]["content"] for each in others} == {alone}


def test_a_streamed_call_equals_the_complete_one(tenants) -> None:  # type: ignore[no-untyped-def]
    fields = {"model": "a", "temperature": 0, "tool_choice": NAMED}
    whole = chat(tenants.acme, **fields)["choices"][0]["message"]["tool_calls"][0]["function"]
    streamed = {"name": "", "arguments": ""}
    with tenants.acme.stream("POST", "/v1/chat/completions", json=BODY | fields | {"stream": True}) as response:
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        for call in json.loads(event)["choices"][0]["delta"].get("tool_calls") or ():
            streamed["name"] += call["function"].get("name", "")
            streamed["arguments"] += call["function"]["arguments"]
    assert streamed == whole


def test_an_unsupported_schema_is_rejected(tenants) -> None:  # type: ignore[no-untyped-def]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "bogus"}}}}}]
    response = tenants.acme.post("/v1/chat/completions", json=BODY | {"model": "a", "tools": tools})
    assert response.status_code == 400
    assert "bogus" in response.json()["error"]["message"]
