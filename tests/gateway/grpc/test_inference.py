"""InferenceService over real gRPC: REST's responses as messages."""

import json
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import engine_pb2 as engine_pb
from loragate.v1 import inference_pb2 as pb
from tests.gateway.grpc_client import Client, connected, rich_error
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

MESSAGES = [{"role": "user", "content": "A question about stars"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
    },
}


def as_rest(message: Any) -> Any:
    """Return a message as REST's JSON, without values that differ between responses or are null in REST."""
    document = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=False)
    return _comparable(document)


def _comparable(document: Any) -> Any:
    if isinstance(document, dict):
        dropped = {"id", "created", "text_of_first"}
        return {k: _comparable(v) for k, v in document.items() if k not in dropped and v not in (None, [], "", 0, "0")}
    if isinstance(document, list):
        return [_comparable(each) for each in document]
    return int(document) if isinstance(document, str) and document.isdigit() else document


async def rest(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    async with gateway.http() as http:
        response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_generate_returns_the_same_as_rest(gateway: Gateway, client: Client) -> None:
    gateway.engine.cached_tokens = 2
    fields: dict[str, Any] = {"model": MODEL_ID, "n": 2, "max_tokens": 5, "logprobs": 2, "echo": False, "seed": 7}
    expected = await rest(gateway, "/v1/completions", fields | {"prompt": ["one two", "three"], "stop": ["x"]})
    request = pb.GenerateRequest(**fields, prompts=["one two", "three"], stop=["x"])
    answer = await client.inference.Generate(request, metadata=client.metadata)
    assert answer.text == answer.choices[0].text == expected["choices"][0]["text"]
    answer.text = ""
    got = as_rest(answer)
    for choice in got["choices"]:
        top = choice["logprobs"]["top_logprobs"]
        choice["logprobs"]["top_logprobs"] = [each["logprobs"] for each in top]
    assert got == _comparable(expected)
    assert gateway.engine.submits[0].sampling == gateway.engine.submits[2].sampling


def with_nulls(document: Any) -> Any:
    """Return the logprobs of a message as REST's, which are null for a prompt's first token."""
    for choice in document["choices"]:
        top = [each.get("logprobs", {}) for each in choice["logprobs"]["top_logprobs"]]
        choice["logprobs"]["top_logprobs"] = [None, *top[1:]]
        first, *others = choice["logprobs"]["token_logprobs"]
        assert (first, top[0]) == (0, {})
        choice["logprobs"]["token_logprobs"] = [None, *others]
    return document


@pytest.mark.parametrize("max_tokens", [0, 3])
async def test_logprobs_of_prompts_are_the_same_as_rests(gateway: Gateway, client: Client, max_tokens: int) -> None:
    fields: dict[str, Any] = {"n": 2, "logprobs": 1, "echo": True, "max_tokens": max_tokens, "prompt_logprobs": 2}
    expected = await rest(gateway, "/v1/completions", {"model": MODEL_ID, "prompt": [[5, 6, 7], [8, 9]], **fields})
    ids = [pb.TokenIds(ids=[5, 6, 7]), pb.TokenIds(ids=[8, 9])]
    request = pb.GenerateRequest(model=MODEL_ID, prompt_token_ids=ids, **fields)
    answer = await client.inference.Generate(request, metadata=client.metadata)
    answer.text = ""
    got = with_nulls(as_rest(answer))
    for choice in got["choices"]:
        first, *others = choice["prompt_logprobs"]
        assert first == {}
        choice["prompt_logprobs"] = [None, *(each["logprobs"] for each in others)]
    assert got == _comparable(expected)
    request.ClearField("prompt_logprobs")
    pieces = [piece async for piece in client.inference.GenerateStream(request, metadata=client.metadata)]
    for choice in answer.choices:
        mine = [each.logprobs for piece in pieces for each in piece.choices if each.index == choice.index]
        assert [token for each in mine for token in each.tokens] == list(choice.logprobs.tokens)
        assert [value for each in mine for value in each.token_logprobs] == list(choice.logprobs.token_logprobs)


async def test_prompt_logprobs_of_a_chat(gateway: Gateway, client: Client) -> None:
    request = pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, prompt_logprobs=1, max_tokens=2)
    answer = await client.inference.Chat(request, metadata=client.metadata)
    (submit,) = gateway.engine.submits
    first, *others = answer.prompt_logprobs
    assert not first.logprobs
    for entry, token in zip(others, submit.prompt_token_ids[1:], strict=True):
        assert sorted(entry.logprobs) == [token, token + 1]
        assert (entry.logprobs[token].logprob, entry.logprobs[token].rank) == (-(token + 1) / 8, 2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(client.inference.ChatStream(request, metadata=client.metadata)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_chat_returns_the_same_as_rest(gateway: Gateway, client: Client) -> None:
    fields = {"model": MODEL_ID, "messages": MESSAGES, "logprobs": True, "top_logprobs": 1, "max_tokens": 4}
    expected = await rest(gateway, "/v1/chat/completions", fields | {"logit_bias": {"7": 1.5}})
    request = pb.ChatRequest(**fields, logit_bias={7: 1.5})
    answer = await client.inference.Chat(request, metadata=client.metadata)
    assert answer.text == expected["choices"][0]["message"]["content"]
    answer.text = ""
    assert as_rest(answer) == _comparable(expected)
    first, second = gateway.engine.submits
    assert first.sampling == second.sampling
    assert first.prompt_token_ids == second.prompt_token_ids


@pytest.mark.parametrize("n", [1, 2])
async def test_streams_add_up_to_the_complete_response(gateway: Gateway, client: Client, n: int) -> None:
    gateway.engine.respond_with("All the stars and the sun.")
    request = pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, n=n)
    chunks = [chunk async for chunk in client.inference.ChatStream(request, metadata=client.metadata)]
    texts = ["".join(c.delta.content for k in chunks for c in k.choices if c.index == i) for i in range(n)]
    assert texts == ["All the stars and the sun."] * n
    assert "".join(chunk.text for chunk in chunks) == texts[0]
    assert [c.finish_reason for k in chunks for c in k.choices if c.finish_reason] == ["stop"] * n
    whole = await client.inference.Chat(request, metadata=client.metadata)
    assert chunks[-1].usage == whole.usage
    assert not chunks[-1].choices

    asked = pb.GenerateRequest(model=MODEL_ID, prompt="x", n=n)
    pieces = [piece async for piece in client.inference.GenerateStream(asked, metadata=client.metadata)]
    whole = await client.inference.Generate(asked, metadata=client.metadata)
    assert "".join(piece.text for piece in pieces) == whole.text == texts[0]
    assert pieces[-1].usage == whole.usage


async def test_prompts_as_token_ids(gateway: Gateway, client: Client) -> None:
    ids = [pb.TokenIds(ids=[5, 6, 7]), pb.TokenIds(ids=[8])]
    request = pb.GenerateRequest(model=MODEL_ID, prompt_token_ids=ids, temperature=0)
    answer = await client.inference.Generate(request, metadata=client.metadata)
    assert len(answer.choices) == 2
    assert [list(submit.prompt_token_ids) for submit in gateway.engine.submits] == [[5, 6, 7], [8]]
    assert gateway.engine.submits[0].sampling.temperature == 0


async def test_tools_and_schemas_reach_the_engine_as_from_rest(gateway: Gateway, client: Client) -> None:
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}, "required": ["z"]}
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"model": MODEL_ID, "messages": MESSAGES, "response_format": format_}
    await rest(gateway, "/v1/chat/completions", body)
    as_text = {"type": "json_schema", "json_schema": {"name": "x", "schema": json.dumps(schema)}}
    await client.inference.Chat(
        pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, response_format=as_text), metadata=client.metadata
    )
    first, second = gateway.engine.submits
    assert first.grammar == second.grammar
    assert first.grammar.json_schema == json.dumps(schema), "in the order that the client wrote"


async def test_a_tool_is_called(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    engine.manifest.chat_template = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}" + str(
        engine.manifest.chat_template
    )
    engine.manifest.max_model_len = 1024
    engine.respond_with('<tool_call>\n{"name": "look", "arguments": {"z": "up"}}\n</tool_call>')
    function = {**TOOL["function"], "parameters": json.dumps(TOOL["function"]["parameters"])}  # type: ignore[dict-item,index]
    request = pb.ChatRequest(
        model=MODEL_ID,
        messages=MESSAGES,
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "auto"},
        max_tokens=100,
    )
    listening = replace(config, tool_parser="hermes")
    async with serving(listening, engine, tenants) as gateway, connected(gateway.grpc_target, gateway.key) as client:
        await gateway.until_ready()
        whole = await client.inference.Chat(request, metadata=client.metadata)
        chunks = [chunk async for chunk in client.inference.ChatStream(request, metadata=client.metadata)]
        [call] = whole.choices[0].message.tool_calls
        assert whole.choices[0].finish_reason == "tool_calls"
        assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "look", {"z": "up"})
        pieces = [piece for k in chunks for c in k.choices for piece in c.delta.tool_calls]
        assert "".join(piece.function.arguments for piece in pieces) == call.function.arguments
        # The response is sent back as it came, with the tool's result.
        request.messages.append(whole.choices[0].message)
        request.messages.add(role="tool", content="blue", tool_call_id=call.id)
        engine.respond_with("It is blue.")
        assert (await client.inference.Chat(request, metadata=client.metadata)).text == "It is blue."


async def test_response_headers_are_in_the_initial_metadata(gateway: Gateway, client: Client, upload: Any) -> None:
    created = await upload("poet")
    request = pb.ChatRequest(model="poet", messages=MESSAGES)
    metadata = (*client.metadata, ("x-request-id", "mine-1"))
    whole = client.inference.Chat(request, metadata=metadata)
    stream = client.inference.ChatStream(request, metadata=metadata)
    for call in (whole, stream):
        headers = dict(await call.initial_metadata())
        assert headers["x-loragate-adapter"] == f"poet:1@{created['digest']}"
        assert headers["x-request-id"] == "mine-1"
    assert (await whole).text == "".join([chunk.text async for chunk in stream])


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (pb.ChatRequest(messages=MESSAGES), "model"),
        (pb.ChatRequest(model=MODEL_ID), "messages"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, temperature=3), "temperature"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, temperature=float("nan")), "temperature"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, n=0), "n"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, n=1_000_000_000), "n"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, max_tokens=-1), "max_tokens"),
        (pb.ChatRequest(model=MODEL_ID, messages=[{"role": "root", "content": "x"}]), "messages.0.role"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, logit_bias={1: 1000}), "logit_bias.1"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, tool_choice={"type": "some"}), "tool_choice"),
        (pb.ChatRequest(model=MODEL_ID, messages=MESSAGES, tool_choice={}), "tool_choice"),
        (
            pb.ChatRequest(
                model=MODEL_ID,
                messages=MESSAGES,
                tools=[{"type": "function", "function": {"name": "f", "parameters": "[1"}}],
            ),
            "tools.0.function.parameters",
        ),
        (
            pb.ChatRequest(
                model=MODEL_ID,
                messages=MESSAGES,
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": "[" * 5000}},
            ),
            "response_format.json_schema.schema",
        ),
        (pb.GenerateRequest(model=MODEL_ID), "prompt"),
        (pb.GenerateRequest(model=MODEL_ID, prompt="x", prompts=["y"]), "prompt"),
        (pb.GenerateRequest(model=MODEL_ID, prompt_token_ids=[{}]), "prompt"),
        (pb.GenerateRequest(model=MODEL_ID, prompt_token_ids=[{"ids": [1 << 31]}]), "prompt"),
        (pb.GenerateRequest(model=MODEL_ID, prompt="x" * 10_000), "prompt"),
        (pb.GenerateRequest(model=MODEL_ID, prompt="x", stop=[""]), "stop.0"),
    ],
)
async def test_bad_requests_name_the_field(client: Client, message: Any, param: str) -> None:
    method = client.inference.Chat if isinstance(message, pb.ChatRequest) else client.inference.Generate
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await method(message, metadata=client.metadata)
    error = rich_error(failed.value)
    assert error.status == grpc.StatusCode.INVALID_ARGUMENT
    assert (error.param, error.violations) == (param, [param])


@pytest.mark.parametrize(
    ("failure", "status", "code", "retry"),
    [
        (
            engine_pb.EngineError(code=engine_pb.ERROR_CODE_NON_FINITE),
            grpc.StatusCode.INTERNAL,
            "non_finite_output",
            None,
        ),
        (
            engine_pb.EngineError(code=engine_pb.ERROR_CODE_OVERLOADED, retry_after_ms=2300),
            grpc.StatusCode.UNAVAILABLE,
            "overloaded",
            5.0,
        ),
        (
            engine_pb.EngineError(code=engine_pb.ERROR_CODE_OVERLOADED, retry_after_ms=400, own_queue=True),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "overloaded",
            0.5,
        ),
    ],
)
async def test_errors_of_the_engine(
    gateway: Gateway, client: Client, failure: Any, status: grpc.StatusCode, code: str, retry: float | None
) -> None:
    gateway.engine.failure = failure
    gateway.engine.fails = lambda submit: True
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.inference.Generate(pb.GenerateRequest(model=MODEL_ID, prompt="x"), metadata=client.metadata)
    error = rich_error(failed.value)
    assert (error.status, error.code, error.retry_seconds) == (status, code, retry)


async def rest_of(call: Any) -> list[Any]:
    return [message async for message in call]


async def test_an_engine_that_dies_ends_a_stream_with_a_typed_error(gateway: Gateway, client: Client) -> None:
    gateway.engine.pause_after = 2
    request = pb.GenerateRequest(model=MODEL_ID, prompt="one two three four")
    call = client.inference.GenerateStream(request, metadata=client.metadata)
    first = await anext(aiter(call))
    assert first.choices
    await gateway.engine.paused.wait()
    await gateway.engine.kill()
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await rest_of(call)
    error = rich_error(failed.value)
    assert (error.status, error.code) == (grpc.StatusCode.UNAVAILABLE, "engine_unavailable")
