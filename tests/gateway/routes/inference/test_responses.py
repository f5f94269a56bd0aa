"""/v1/responses through the official client, with a scripted engine."""

import asyncio
import json
from typing import Any, get_args

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from tests.gateway import tiny_model
from tests.gateway.routes.inference.test_openai_types import CALL, read
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"type": "function", "name": "weather", "parameters": PARAMETERS}
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin" /.+/'},
}
ASK: dict[str, Any] = {"model": MODEL_ID, "input": "What is the weather?"}
SAID = {"type": "output_text", "text": "Let me see.", "annotations": []}
CALLED = {"type": "function_call", "name": "weather", "arguments": '{"city": "Oslo"}'}
RETURNED = {"type": "function_call_output"}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "What is the weather?"},
    {"type": "message", "role": "assistant", "content": [SAID]},
    {**CALLED, "call_id": "a", "status": "completed"},
    {**CALLED, "call_id": "b"},
    {**RETURNED, "call_id": "b", "output": [{"type": "input_text", "text": "sun"}]},
    {**RETURNED, "call_id": "a", "output": "rain"},
    {"role": "user", "content": [{"type": "input_text", "text": "And "}, {"type": "input_text", "text": "tomorrow?"}]},
]


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


class Place(BaseModel):
    """The schema of a response."""

    city: str


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 1024, "chat_template": tiny_model.TOOLS_TEMPLATE}


async def events_of(gateway: Gateway, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a stream, each with its name."""
    async with gateway.http() as http:
        response = await http.post("/v1/responses", json=body | {"stream": True})
    assert response.status_code == 200, response.text
    events = []
    for frame in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


async def test_a_response(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    gateway.engine.respond_with("It is fine.")
    async with gateway.openai() as client:
        raw = await client.responses.with_raw_response.create(
            model="poet", instructions="Be brief.", input="What is the weather?", metadata={"a": "b"}, temperature=0.7
        )
    response = raw.parse()
    assert (response.output_text, response.status, response.error) == ("It is fine.", "completed", None)
    assert (response.model, response.temperature, response.metadata) == ("poet", 0.7, {"a": "b"})
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert raw.headers["x-loragate-adapter"].startswith("poet:1@sha256:")
    (submit,) = gateway.engine.submits
    prompt = gateway.engine.tokenizer.decode(list(submit.prompt_token_ids))
    assert "Be brief." in prompt
    assert prompt.index("Be brief.") < prompt.index("What is the weather?")


STREAMED: list[dict[str, Any]] = [
    {},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    {"max_output_tokens": 1},
    {"tools": [WEATHER], "said": CALL},
    {"tools": [WEATHER], "said": f"Let me see. {CALL}"},
    {
        "tools": [WEATHER],
        "said": f"{CALL}{CALL} That was it.",
        "tool_choice": {"type": "function", "name": "weather"},
    },
    {"said": ""},
    {
        "text": {"format": {"type": "json_schema", "name": "place", "schema": PARAMETERS}},
        "said": '{"city": "Oslo"}',
    },
]


async def test_a_stream_adds_up_to_the_whole(gateway: Gateway) -> None:
    for fields in STREAMED:
        await check_stream(gateway, fields)


async def check_stream(gateway: Gateway, fields: dict[str, Any]) -> None:
    fields = dict(fields)
    gateway.engine.respond_with(fields.pop("said", "It is fine."))
    async with gateway.http() as http:
        whole = (await http.post("/v1/responses", json=ASK | fields)).json()
    events = await events_of(gateway, ASK | fields)
    read(Response, whole, "store")
    for event in events:
        read(_type_of(event), event, "store")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    limited = "max_output_tokens" in fields
    assert events[-1]["type"] == ("response.incomplete" if limited else "response.completed")
    streamed = events[-1]["response"]
    assert _without_ids(streamed) == _without_ids(whole)
    assert streamed["output"] == [event["item"] for event in events if event["type"] == "response.output_item.done"]
    for index, item in enumerate(streamed["output"]):
        own = [event for event in events if event.get("output_index") == index]
        assert (own[0]["type"], own[-1]["type"]) == ("response.output_item.added", "response.output_item.done")
        assert {event["item_id"] for event in own[1:-1]} == {item["id"]}
        said = "".join(event["delta"] for event in own if event["type"].endswith(".delta"))
        assert said == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
    assert whole["output"], "there is always something"
    if "include" in fields:
        assert all(entry["top_logprobs"] for entry in whole["output"][0]["content"][0]["logprobs"])


def _type_of(event: dict[str, Any]) -> type[BaseModel]:
    """Return the client's class for this event's `type`."""
    (found,) = [
        each
        for each in get_args(get_args(ResponseStreamEvent)[0])
        if event["type"] in get_args(each.model_fields["type"].annotation)
    ]
    return found  # type: ignore[no-any-return]


def _without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """Return what two responses to the same request have in common."""
    volatile = dict.fromkeys(("id", "created_at", "completed_at"))
    return response | volatile | {"output": [item | {"id": None, "call_id": None} for item in response["output"]]}


async def test_the_clients_stream_and_parse(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        gateway.engine.respond_with("It is fine.")
        async with client.responses.stream(**ASK) as stream:
            text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            final = await stream.get_final_response()
        assert text == final.output_text == "It is fine."
        gateway.engine.respond_with('{"city": "Oslo"}')
        parsed = await client.responses.parse(**ASK, text_format=Place)
        assert parsed.output_parsed == Place(city="Oslo")
        assert "city" in gateway.engine.submits[-1].grammar.json_schema


async def test_a_conversation_continues_with_earlier_output(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    async with gateway.openai() as client:
        first = await client.responses.create(**ASK, tools=[WEATHER])
        (call,) = first.output
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Oslo"}
        gateway.engine.respond_with("Rain.")
        answered = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        items = [{"role": "user", "content": ASK["input"]}, *first.output, answered]
        second = await client.responses.create(model=MODEL_ID, input=items, tools=[WEATHER])
        third = await client.responses.create(model=MODEL_ID, input=[*items, *second.output, CONVERSATION[0]])
        await client.responses.create(model=MODEL_ID, input=CONVERSATION)
    assert (second.output_text, third.output_text) == ("Rain.", "Rain.")
    prompt = gateway.engine.tokenizer.decode(list(gateway.engine.submits[-1].prompt_token_ids))
    assert prompt.index("Let me see.") < prompt.index("sun") < prompt.index("rain") < prompt.index("And tomorrow?")


async def test_what_codex_sends(gateway: Gateway) -> None:
    """Fields, tools and items of its requests, and the call of a custom tool that goes back and forth."""
    files = {"type": "namespace", "name": "files", "description": "", "tools": [WEATHER]}
    sent: dict[str, Any] = {
        "model": MODEL_ID,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "extra_body": {"client_metadata": {"session": "x"}},
        "truncation": "auto",
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "user": None,
        "tools": [PATCH, files],
    }
    change = {"input": "*** Begin\n+a"}
    calls = [
        f'<tool_call>{{"name": "apply_patch", "arguments": {json.dumps(change)}}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {}}</tool_call>',
    ]
    gateway.engine.respond_with("\n".join(calls))
    async with gateway.openai() as client:
        first = await client.responses.create(**sent, input="Change it.")
        patch, weather = first.output
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "apply_patch", "*** Begin\n+a")
        assert (weather.type, weather.name, weather.namespace) == ("function_call", "weather", "files")
        gateway.engine.respond_with("Done.")
        results = [
            {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "ok"},
            {"type": "function_call_output", "call_id": weather.call_id, "output": "sun"},
        ]
        asked = {"type": None, "role": "user", "content": "Change it."}
        second = await client.responses.create(**sent, input=[asked, *first.output, *results])
    assert second.output_text == "Done."
    assert second.output[0].content[0].logprobs == []
    gateway.engine.respond_with(calls[0])
    body = sent.pop("extra_body") | sent | {"input": "Change it."}
    kinds = {event["type"]: event for event in await events_of(gateway, body)}
    assert "response.completed" in kinds
    assert kinds["response.custom_tool_call_input.delta"]["delta"] == "*** Begin\n+a"
    assert kinds["response.custom_tool_call_input.done"]["input"] == "*** Begin\n+a"


REJECTED: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "not stored"),
    ({"conversation": "conv_1"}, "conversation", "not stored"),
    ({"store": True}, "store", "not stored"),
    ({"background": True}, "background", ""),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", ""),
    ({"truncation": "some"}, "truncation", ""),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type", 'web_search = "disabled"'),
    ({"tools": [WEATHER, {"type": "mcp", "server_label": "x"}]}, "tools.1.type", "`HostedMCPTool`"),
    ({"tools": [{"type": "computer_use_preview"}]}, "tools.0.type", "`ComputerTool`"),
    ({"tools": [{"type": "local_shell"}]}, "tools.0.type", "send functions"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "tools.0.tools", "namespace"),
    ({"tools": [{**PATCH, "format": {"type": "grammar"}}]}, "tools.0.format.syntax", "grammar"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type", "store=false"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input.0.type", "not supported"),
    ({"include": ["secrets"]}, "include.0", ""),
    ({"tools": [WEATHER, WEATHER]}, "tools.1.function.name", ""),
    ({"tool_choice": "required"}, "tool_choice", ""),
    ({"tool_choice": {"type": "mcp"}}, "tool_choice", ""),
    ({"input": []}, "input", ""),
    ({"input": [{"role": "user"}]}, "input.0.content", "required"),
    ({"input": [{"type": "reasoning", "id": "rs_1", "summary": ["x"]}]}, "input.0.summary.0", ""),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input.0.content.0",
        "",
    ),
    ({"input": CONVERSATION[2:3]}, "input", "needs a result"),
    ({"input": "x" * 10_000}, "input", "context"),
    ({"max_output_tokens": 0}, "max_output_tokens", ""),
    ({"max_output_tokens": 5000}, "input", "context"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "required"),
    ({"n": 2}, "n", "no such field"),
    ({"stream_options": {}}, "stream_options", ""),
]


async def test_unsupported_options_are_rejected_by_name(gateway: Gateway) -> None:
    async with gateway.http() as http:
        for fields, param, words in REJECTED:
            response = await http.post("/v1/responses", json=ASK | fields)
            assert response.status_code == 400, response.text
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["param"].startswith(param), error
            assert words in error["message"], error


async def test_a_failure_before_the_first_event_is_an_ordinary_error(gateway: Gateway) -> None:
    gateway.engine.fails = lambda submit: True
    async with gateway.openai() as client:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError):
                await client.responses.create(**ASK, stream=stream)
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="nobodys", input="x")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_failure_during_the_stream_is_its_last_event(own_gateway: Gateway) -> None:
    own_gateway.engine.pause_after = 3
    async with (
        own_gateway.http() as http,
        http.stream("POST", "/v1/responses", json=ASK | {"stream": True}) as response,
    ):
        lines = response.aiter_lines()
        while "output_text.delta" not in await anext(lines):
            pass
        await own_gateway.engine.kill()
        rest = [line async for line in lines]
    last = json.loads([line for line in rest if line.startswith("data: ")][-1].removeprefix("data: "))
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "[DONE]" not in "".join(rest)
    read(_type_of(last), last, "store")


@pytest.mark.asyncio(loop_scope="function")
async def test_metered_usage_equals_the_reported_usage(own_gateway: Gateway) -> None:
    async with own_gateway.openai() as client, own_gateway.http() as http:
        reported = [(await client.responses.create(**ASK)).usage]
        async with client.responses.stream(**ASK) as stream:
            reported.append((await stream.get_final_response()).usage)
        total = sum(usage.total_tokens for usage in reported if usage)
        async with asyncio.timeout(10):
            while (row := await _usage(http)) is None or row["total_tokens"] != total:
                await asyncio.sleep(0.05)
    assert (row["endpoint"], row["requests"]) == ("responses", 2)


async def _usage(http: httpx.AsyncClient) -> Any:
    rows = (await http.get("/v1/usage?group_by=endpoint")).json()["data"]
    return rows[0] if rows else None
