"""/v1/messages and /v1/messages/count_tokens as Anthropic's clients call them, with a scripted engine."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.routes.inference.test_openai_types import CALL
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = """{% if tools %}tools: {{ tools | tojson }}
{% endif %}{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}{{- '[' + call.function.name + call.function.arguments | tojson + ']' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think></think>' }}{%- endif %}
{%- if reasoning_effort %}{{- '(' + reasoning_effort + ')' }}{%- endif %}{%- endif %}"""
VERSION = {"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14"}
ASK: dict[str, Any] = {
    "model": MODEL_ID,
    "max_tokens": 300,
    "messages": [{"role": "user", "content": "What is the weather?"}],
}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
USED = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
RETURNED = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
THOUGHT = "<think>Who knows?</think>It is fine."


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_model.byte_level_tokenizer("<think>", "</think>")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 1024, "chat_template": TEMPLATE}


async def post(gateway: Gateway, status: int = 200, *, path: str = "/v1/messages", **fields: Any) -> dict[str, Any]:
    async with gateway.http() as http:
        response = await http.post(f"{path}?beta=true", json=ASK | fields, headers=VERSION)
    assert response.status_code == status, response.text
    assert response.headers["request-id"] == response.headers["x-request-id"]
    answer: dict[str, Any] = response.json()
    return answer


async def refused(gateway: Gateway, **fields: Any) -> str:
    """Return the message of the error of a request that is rejected."""
    answer = await post(gateway, 400, **fields)
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
    assert answer.keys() == {"type", "error", "request_id"}
    message: str = answer["error"]["message"]
    return message


def events_in(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the events of a stream, each with its name."""
    events = []
    for frame in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


async def stream(gateway: Gateway, **fields: Any) -> list[dict[str, Any]]:
    async with gateway.http() as http:
        response = await http.post("/v1/messages", json=ASK | fields | {"stream": True}, headers=VERSION)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_in(response)


def prompt(gateway: Gateway) -> str:
    ids = list(gateway.engine.submits[-1].prompt_token_ids)
    return str(gateway.engine.tokenizer.decode(ids, skip_special_tokens=False))


def added_up(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that the events of a stream add up to, as Anthropic's client does it."""
    first, ping, *rest = events
    assert (first["type"], ping) == ("message_start", {"type": "ping"})
    message, texts = first["message"], dict[int, str]()
    assert (message["content"], message["stop_reason"]) == ([], None)
    content: list[dict[str, Any]] = message["content"]
    for event in rest:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(content) == len(texts)
                content.append(event["content_block"])
                texts[event["index"]] = ""
            case "content_block_delta":
                assert event["index"] == len(content) - 1
                delta = event["delta"]
                kind = delta["type"]
                field = {"input_json_delta": "partial_json"}.get(kind, kind.removesuffix("_delta"))
                texts[event["index"]] += delta[field]
            case "content_block_stop":
                block, text = content[event["index"]], texts[event["index"]]
                name = {"tool_use": "input"}.get(block["type"], block["type"])
                block[name] = json.loads(text or "{}") if name == "input" else text
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    return dict(message)


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return message | {"id": "", "content": content}


async def test_a_message(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    gateway.engine.respond_with("It is fine.")
    gateway.engine.cached_tokens = 3
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0f9c3;"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ]
    said = [{"type": "text", "text": "What is", "citations": None}, {"type": "text", "text": "the weather?"}]
    answer = await post(
        gateway,
        model="poet",
        system=system,
        messages=[{"role": "user", "content": "Hello."}, {"role": "user", "content": said}],
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        metadata={"user_id": "someone"},
        service_tier="auto",
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        container=None,
    )
    assert answer.pop("id").startswith("msg_")
    tokens = len(gateway.engine.submits[-1].prompt_token_ids)
    written = len(gateway.engine.tokenizer.encode("It is fine.").ids)
    usage = {
        "input_tokens": tokens - 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": written + 1,
    }
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "poet",
        "content": [{"type": "text", "text": "It is fine."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    turns = "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nHello.\n\nWhat is\n\nthe weather?"
    assert prompt(gateway) == f"{turns}<|im_end|>\n<|im_start|>assistant\n<think></think>"
    sampling = gateway.engine.submits[-1].sampling
    assert (sampling.max_tokens, sampling.top_k) == (300, 7)
    assert (round(sampling.temperature, 3), round(sampling.top_p, 3)) == (0.5, 0.9)


STREAMED: list[tuple[str, dict[str, Any], str]] = [
    ("It is fine.", {}, "end_turn"),
    ("", {}, "end_turn"),
    ("It is fine.", {"max_tokens": 1}, "max_tokens"),
    ("It is fine. THE END and more", {"stop_sequences": ["never", "THE END"]}, "stop_sequence"),
    (CALL, {"tools": [WEATHER]}, "tool_use"),
    (f"Let me see. {CALL}{CALL} That was it.", {"tools": [WEATHER]}, "tool_use"),
    (f"{CALL}{CALL}", {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}}, "tool_use"),
    (THOUGHT, {"thinking": {"type": "enabled", "budget_tokens": 50}}, "end_turn"),
    (THOUGHT, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "end_turn"),
    ("<think>Who knows", {"thinking": {"type": "adaptive"}}, "end_turn"),
    (f"<think>Oslo.</think>{CALL}", {"thinking": {"type": "enabled"}, "tools": [WEATHER]}, "tool_use"),
]


@pytest.mark.parametrize(("said", "fields", "reason"), STREAMED)
async def test_a_stream_adds_up_to_the_whole(gateway: Gateway, said: str, fields: dict[str, Any], reason: str) -> None:
    gateway.engine.respond_with(said)
    whole = await post(gateway, **fields)
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, "THE END" if reason == "stop_sequence" else None)
    assert without_ids(added_up(await stream(gateway, **fields))) == without_ids(whole)
    if said:
        assert whole["content"]


async def test_thinking_is_a_block_of_its_own(gateway: Gateway) -> None:
    gateway.engine.respond_with(THOUGHT)
    thought = {"type": "thinking", "thinking": "Who knows?", "signature": ""}
    text = {"type": "text", "text": "It is fine."}
    events = await stream(gateway, thinking={"type": "enabled", "budget_tokens": 50})
    assert added_up(events)["content"] == [thought, text]
    kinds = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(kinds)) == ["thinking_delta", "signature_delta", "text_delta"]
    assert gateway.engine.submits[-1].thinking.max_tokens == 50
    for fields in ({}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive", "display": "omitted"}}):
        assert (await post(gateway, **fields))["content"] == [text]
    assert prompt(gateway).endswith("assistant\n")
    await post(gateway, output_config={"effort": "low"}, thinking={"type": "adaptive"})
    assert prompt(gateway).endswith("(low)")


async def test_tools_there_and_back(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"Let me see. {CALL}{CALL}")
    answer = await post(gateway, tools=[WEATHER | {"type": "custom", "cache_control": {"type": "ephemeral"}}])
    text, *calls = answer["content"]
    assert text == {"type": "text", "text": "Let me see."}
    assert [call["input"] for call in calls] == [{"city": "Oslo"}] * 2
    assert len({call["id"] for call in calls}) == 2
    assert calls[0]["id"].startswith("toolu_")
    assert "Tells the weather." in prompt(gateway)
    results = [
        {"type": "text", "text": "Thanks."},
        RETURNED | {"tool_use_id": calls[1]["id"], "content": [{"type": "text", "text": "rain"}]},
        RETURNED | {"tool_use_id": calls[0]["id"], "content": "no network", "is_error": True},
    ]
    thought = [{"type": "thinking", "thinking": "Oslo?", "signature": ""}, {"type": "redacted_thinking", "data": "AA"}]
    gateway.engine.respond_with("Rain.")
    said = await post(
        gateway,
        tools=[WEATHER],
        messages=[
            *ASK["messages"],
            {"role": "assistant", "content": [*thought, *answer["content"]]},
            {"role": "user", "content": results},
        ],
    )
    assert (said["content"][0]["text"], said["stop_reason"]) == ("Rain.", "end_turn")
    read = prompt(gateway)
    assert "<think>Oslo?</think>Let me see.[weather" in read
    order = ("rain<|im_end|>", "Error: no network<|im_end|>", "<|im_start|>user\nThanks.<|im_end|>")
    places = [read.index(each) for each in order]
    assert places == sorted(places)


async def test_the_choice_of_a_tool(gateway: Gateway) -> None:
    tools = [WEATHER, WEATHER | {"name": "tides"}]
    gateway.engine.respond_with(f"{CALL}{CALL}")
    one = await post(gateway, tools=tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [block["type"] for block in one["content"]] == ["tool_use"]
    await post(gateway, tools=tools, tool_choice={"type": "any"})
    assert gateway.engine.submits[-1].grammar.lark
    await post(gateway, tools=tools, tool_choice={"type": "none"})
    assert "tides" not in prompt(gateway)
    message = await refused(gateway, tools=tools, tool_choice={"type": "tool", "name": "moon"})
    assert "'tool_choice'" in message


async def test_arguments_that_end_in_the_middle(gateway: Gateway) -> None:
    cut = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "d'
    tokens = gateway.engine.tokenizer.encode(cut).ids
    gateway.engine.script = lambda submit: tokens
    answer = await post(gateway, tools=[WEATHER], max_tokens=len(tokens))
    assert answer["stop_reason"] == "max_tokens"
    assert [block["input"] for block in answer["content"]] == [{"city": "Oslo"}]


async def test_an_answer_that_is_begun(gateway: Gateway) -> None:
    begun = [*ASK["messages"], {"role": "assistant", "content": "It is"}]
    gateway.engine.respond_with(" fine.")
    assert (await post(gateway, messages=begun))["content"] == [{"type": "text", "text": " fine."}]
    assert prompt(gateway).endswith("assistant\nIt is")


async def test_an_answer_that_matches_a_schema(gateway: Gateway) -> None:
    gateway.engine.respond_with('{"city": "Oslo"}')
    await post(gateway, output_config={"format": {"type": "json_schema", "schema": WEATHER["input_schema"]}})
    assert json.loads(gateway.engine.submits[-1].grammar.json_schema) == WEATHER["input_schema"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "'max_tokens'"),
    ({"messages": []}, "'messages'"),
    ({"temperature": 1.5}, "'temperature'"),
    ({"stop_sequences": [""]}, "'stop_sequences.0'"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "'messages.0.content.0.type': this server reads text only"),
    ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "'messages.0.content.0.type'"),
    ({"messages": [{"role": "user", "content": [USED]}]}, "'messages.0.content.0.type'"),
    ({"messages": [{"role": "user", "content": [RETURNED]}]}, "'messages.0.content.0.tool_use_id'"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "'messages.0.content.0.text'"),
    ({"messages": [*ASK["messages"], {"role": "assistant", "content": [USED]}]}, "'messages.1.content'"),
    ({"messages": [*ASK["messages"], {"role": "assistant", "content": [USED, USED]}]}, "'messages.1.content.1.id'"),
    (
        {"messages": [{"role": "assistant", "content": [USED]}, {"role": "user", "content": "And?"}]},
        "'messages.0.content': each 'tool_use' needs a 'tool_result'",
    ),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'tools.0.type': this server runs no tools"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'tools.0.type'"),
    ({"tools": [{"name": "weather"}]}, "'tools.0.input_schema'"),
    ({"tools": [WEATHER, WEATHER]}, "'tools.1.name': another tool has the same name"),
    ({"tools": [WEATHER | {"input_schema": {"type": "string"}}]}, "'tools.0.input_schema'"),
    ({"tool_choice": {"type": "any"}}, "'tool_choice': it is only allowed with 'tools'"),
    ({"tool_choice": {"type": "tool"}}, "'tool_choice.name'"),
    ({"container": "x"}, "'container'"),
    ({"mcp_servers": [{"type": "url"}]}, "'mcp_servers'"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "'thinking.budget_tokens'"),
    ({"n": 2}, "'n': there is no such field"),
    ({"max_tokens": 2000}, "input length and `max_tokens` exceed context limit: "),
    ({"messages": [{"role": "user", "content": "x y " * 3000}]}, "prompt is too long: "),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED)
async def test_what_is_refused(gateway: Gateway, fields: dict[str, Any], words: str) -> None:
    assert words in await refused(gateway, **fields)
    assert gateway.engine.submits == []


async def test_counting_tokens(gateway: Gateway) -> None:
    body = {name: value for name, value in ASK.items() if name != "max_tokens"}
    async with gateway.http() as http:
        for fields in ({}, {"tools": [WEATHER]}, {"thinking": {"type": "adaptive"}}, {"system": "Be brief."}):
            counted = await http.post("/v1/messages/count_tokens", json=body | fields, headers=VERSION)
            assert counted.status_code == 200, counted.text
            assert gateway.engine.submits == []
            await http.post("/v1/messages", json=ASK | fields)
            assert counted.json() == {"input_tokens": len(gateway.engine.submits.pop().prompt_token_ids)}
            assert counted.headers["request-id"] == counted.headers["x-request-id"]
        long = {"messages": [{"role": "user", "content": "x y " * 3000}]}
        rejected = await http.post("/v1/messages/count_tokens", json=body | long)
        assert rejected.status_code == 400
        assert rejected.json()["error"]["message"].startswith("prompt is too long: ")
        limited = await http.post("/v1/messages/count_tokens", json=ASK)
        assert "'max_tokens'" in limited.json()["error"]["message"]


@pytest.mark.asyncio(loop_scope="function")
async def test_counting_is_charged(own_gateway: Gateway) -> None:
    body = {name: value for name, value in ASK.items() if name != "max_tokens"}
    async with own_gateway.admin() as http:
        patch = {"limits": {"requests_per_minute": 2, "tokens_per_minute": 6000}}
        assert (await http.patch(f"/admin/v1/tenants/{own_gateway.tenant_id}", json=patch)).status_code == 200
    async with own_gateway.http() as http:
        counted = [await http.post("/v1/messages/count_tokens", json=body | {"system": "x" * 900}) for _ in range(2)]
        assert [each.status_code for each in counted] == [200, 200]
        first, second = (int(each.headers["x-ratelimit-remaining-tokens"]) for each in counted)
        assert first - second > counted[0].json()["input_tokens"] / 2
        for path, sent in (("/v1/messages/count_tokens", body), ("/v1/messages", ASK)):
            limited = await http.post(path, json=sent)
            assert (limited.status_code, limited.json()["error"]["type"]) == (429, "rate_limit_error")
            assert "retry-after" in limited.headers


@pytest.mark.asyncio(loop_scope="function")
async def test_only_messages_are_usage(own_gateway: Gateway) -> None:
    body = {name: value for name, value in ASK.items() if name != "max_tokens"}
    async with own_gateway.http() as http:
        assert (await http.post("/v1/messages/count_tokens", json=body)).status_code == 200
        await post(own_gateway)
        async with asyncio.timeout(30):
            while not (rows := (await http.get("/v1/usage", params={"group_by": "endpoint"})).json()["data"]):
                await asyncio.sleep(0.02)
    assert [(row["endpoint"], row["requests"]) for row in rows] == [("messages", 1)]


async def test_the_key_in_its_own_header(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    gateway.engine.respond_with("It is fine.")
    own = ASK | {"model": "poet"}
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        for headers, status, kind in (
            ({"x-api-key": gateway.key}, 200, None),
            ({"x-api-key": gateway.other_key}, 404, "not_found_error"),
            ({"x-api-key": "lg-unknown"}, 401, "authentication_error"),
            ({"x-api-key": gateway.other_key, "authorization": f"Bearer {gateway.key}"}, 200, None),
            ({"x-api-key": gateway.key, "authorization": "Bearer lg-unknown"}, 401, "authentication_error"),
            ({}, 401, "authentication_error"),
        ):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                fields = own if path == "/v1/messages" else {k: v for k, v in own.items() if k != "max_tokens"}
                answer = await http.post(path, json=fields, headers=headers)
                assert answer.status_code == status, answer.text
                assert answer.json().get("error", {}).get("type") == kind
        assert "x-api-key" in answer.json()["error"]["message"]
        models = await http.get("/v1/models", headers={"x-api-key": gateway.key})
        assert "poet" in [model["id"] for model in models.json()["data"]]


async def test_other_errors_have_the_same_form(gateway: Gateway) -> None:
    async with gateway.http() as http:
        broken = await http.post("/v1/messages", content=b"{", headers={"content-type": "application/json"})
        media = await http.post("/v1/messages", content=b"x", headers={"content-type": "text/plain"})
        wrong = await http.get("/v1/messages")
        nowhere = await http.post("/v1/messages/batches", json={})
        unaffected = await http.post("/v1/messages_of_others", json={})
    kinds = [(each.status_code, each.json()["error"]["type"]) for each in (broken, media, wrong, nowhere)]
    assert kinds == [
        (400, "invalid_request_error"),
        (415, "invalid_request_error"),
        (405, "invalid_request_error"),
        (404, "not_found_error"),
    ]
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["request_id"] == wrong.headers["request-id"]
    assert unaffected.json()["error"]["code"] == "unknown_url"


@pytest.mark.asyncio(loop_scope="function")
async def test_a_body_that_is_too_large(small_gateway: Gateway) -> None:
    answer = await post(small_gateway, 413, system="x" * 5000)
    assert answer["error"]["type"] == "request_too_large"


@pytest.mark.asyncio(loop_scope="function")
async def test_the_server_is_shutting_down(own_gateway: Gateway) -> None:
    own_gateway.lifecycle.begin_drain()
    try:
        assert (await post(own_gateway, 503))["error"]["type"] == "api_error"
    finally:
        own_gateway.lifecycle.draining = False


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [(pb.ERROR_CODE_OVERLOADED, 503, "overloaded_error"), (pb.ERROR_CODE_INTERNAL, 500, "api_error")],
)
async def test_the_engine_fails(gateway: Gateway, code: Any, status: int, kind: str) -> None:
    gateway.engine.failure = pb.EngineError(code=code, message="scripted")
    gateway.engine.fails = lambda submit: True
    for fields in ({}, {"stream": True}):
        assert (await post(gateway, status, **fields))["error"]["type"] == kind
    gateway.engine.fails_late = True
    gateway.engine.respond_with("It is fine.")
    *_, last = await stream(gateway)
    assert (last["type"], last["error"]["type"]) == ("error", kind)
    assert last["request_id"]


async def test_a_budget_that_cannot_be_kept(tmp_path: Path) -> None:
    """The tokenizer has no token for the mark, so the engine cannot write it."""
    async with stub_engine(tiny_model.byte_level_tokenizer(), max_model_len=1024, chat_template=TEMPLATE) as engine:
        own = replace(await new_config(tmp_path, engine), reasoning_parser="think")
        async with serving(own, engine, await new_tenants(own)) as gateway:
            await gateway.until_ready()
            engine.respond_with(THOUGHT)
            budget = {"type": "enabled", "budget_tokens": 50}
            assert "'thinking.budget_tokens'" in await refused(gateway, thinking=budget)
            answer = await post(gateway, thinking={"type": "enabled"})
            assert [block["type"] for block in answer["content"]] == ["thinking", "text"]


@pytest.mark.asyncio(loop_scope="function")
async def test_a_model_without_a_chat_template(config: Any, engine: StubEngine, tenants: Any) -> None:
    engine.manifest.chat_template = ""
    async with serving(config, engine, tenants) as gateway:
        await gateway.until_ready()
        assert "no chat template" in await refused(gateway)
