"""Bad requests always get the error envelope with the field's name, and never reach the engine."""

import json
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from pydantic import BaseModel

from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.inference.tokens import DetokenizeRequest, TokenizeRequest
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = [{"role": "user", "content": "secret words"}]
NAMES = ("mine", "mine:1", "mine@default", "none", "none:1", "a b", "x:y:z", "x@", "ft:job", "é")


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def rejected(gateway: Gateway, body: object, url: str = "/v1/chat/completions") -> dict[str, Any]:
    async with gateway.http() as http:
        response = await http.post(url, json=body)
    assert response.status_code == 400, response.text
    assert "secret words" not in response.text
    assert gateway.engine.submits == []
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [*MESSAGES, {"role": "wizard", "content": ""}]}, "messages.1.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "", "tool_calls": [{}]}]}, "messages.0.tool_calls"),
        ({"messages": MESSAGES * 4097}, "messages"),
        ({"model": 7}, "model"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": 1e999}, None),
        ({"top_p": -0.1}, "top_p"),
        ({"presence_penalty": -2.5}, "presence_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": ["x" * 257]}, "stop.0"),
        ({"stop": ""}, "stop.0"),
        ({"logit_bias": {"secret words": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"min_tokens": 300}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"flavour": "vanilla"}, "flavour"),
    ],
)
async def test_each_names_its_field(gateway: Gateway, fields: dict[str, Any], param: str | None) -> None:
    if fields == {"temperature": 1e999}:
        async with gateway.http() as http:
            body = f'{{"model": "{MODEL_ID}", "messages": [], "temperature": Infinity}}'
            response = await http.post("/v1/chat/completions", content=body)
        assert response.status_code == 400
        return
    error = await rejected(gateway, {"model": MODEL_ID, "messages": MESSAGES, **fields})
    assert error["param"] == param


async def test_fields_without_effect_are_accepted(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        await client.chat.completions.create(
            model=MODEL_ID,
            messages=[*MESSAGES, {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None}],
            user="u",
            metadata={"a": "b"},
            store=False,
            service_tier="auto",
            parallel_tool_calls=True,
            response_format={"type": "text"},
            temperature=None,
            tools=[],
        )
    assert gateway.engine.submits[0].sampling.temperature == 1


async def test_a_template_rejects_messages(gateway: Gateway) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "system", "content": "late"}]
    error = await rejected(gateway, {"model": MODEL_ID, "messages": messages})
    assert "the system message must come first" in error["message"]
    assert error["param"] == "messages"


async def test_an_exceeded_context_is_reported_in_openais_words(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        with pytest.raises(BadRequestError) as caught:
            await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=250)
        with pytest.raises(BadRequestError) as flooded:
            await client.chat.completions.create(
                model=MODEL_ID, messages=[{"role": "user", "content": "x" * 2_000_000}]
            )
    assert caught.value.code == flooded.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert "maximum context length is 256 tokens" in caught.value.message
    assert "resulted in at least" in flooded.value.message  # rejected before it was tokenized
    assert gateway.engine.submits == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"a": "\xff"}', b'{"model": NaN}', b'"\\ud800"', b"1" * 5000, b"[" * 100_000],
)
async def test_invalid_json(gateway: Gateway, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


async def test_deep_nesting(gateway: Gateway) -> None:
    deep = b'{"metadata": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", content=deep)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


async def test_other_media_types(gateway: Gateway) -> None:
    async with gateway.http() as http:
        form = await http.post("/v1/chat/completions", data={"model": "x"})
        packed = await http.post("/v1/chat/completions", content=b"x", headers={"content-encoding": "gzip"})
    assert (form.status_code, form.json()["error"]["param"]) == (415, "content-type")
    assert (packed.status_code, packed.json()["error"]["param"]) == (415, "content-encoding")


async def test_missing_foreign_and_malformed_models_are_the_same(gateway: Gateway, upload: Any) -> None:
    await upload("mine")
    bodies = []
    async with gateway.openai() as mine, gateway.openai(gateway.other_key) as other:
        await mine.chat.completions.create(model="mine", messages=MESSAGES)
        for name in (
            "mine",
            "mine:1",
            "mine@default",
            "none",
            "none:1",
            "a b",
            "x:y:z",
            "x@",
            "ft:job",
            "é",
            "x" * 256,
        ):
            with pytest.raises(NotFoundError) as caught:
                await other.chat.completions.create(model=name, messages=MESSAGES)
            assert caught.value.code == "model_not_found"
            bodies.append(str(caught.value.response.json()).replace(name, "NAME"))
    assert len(set(bodies)) == 1


async def test_unknown_urls_and_methods(gateway: Gateway) -> None:
    async with gateway.http() as http:
        missing = await http.get("/v1/nothing")
        slash = await http.get("/v1/models/../../etc/passwd")
        wrong = await http.put("/v1/chat/completions")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "unknown_url"
    assert slash.status_code == 404
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert wrong.headers["allow"] == "POST"


async def test_path_and_query_parameters(gateway: Gateway) -> None:
    async with gateway.http() as http:
        version = await http.get("/v1/adapters/a/versions/one")
        limit = await http.get("/v1/adapters?limit=1000")
        after = await http.get("/v1/adapters?after=unknown")
    assert (version.status_code, version.json()["error"]["param"]) == (400, "version")
    assert (limit.status_code, limit.json()["error"]["param"]) == (400, "limit")
    assert (after.status_code, after.json()["error"]["param"]) == (400, "after")


async def test_a_wrong_method_gets_the_allowed_ones(gateway: Gateway) -> None:
    async with gateway.http() as http:
        response = await http.request("OPTIONS", "/v1/adapters/poet")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, PATCH")
    assert response.json()["error"]["code"] == "method_not_allowed"


SENT_BACK = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "refusal", "refusal": "b"},
    ],
    "parsed": {"answer": 1},
    "annotations": [{"type": "url_citation"}],
    "audio": None,
    "refusal": None,
    "function_call": None,
    "a_newer_field": None,
}


async def test_what_helpers_send_back_is_left_out_of_the_prompt(gateway: Gateway) -> None:
    refused = {"role": "assistant", "content": None, "refusal": "No."}
    both = {"role": "assistant", "content": "Well. ", "refusal": "No."}
    for message, text in ((SENT_BACK, "ab"), (refused, "No."), (both, "Well. No.")):
        async with gateway.http() as http:
            body = {"model": MODEL_ID, "messages": [*MESSAGES, message, *MESSAGES]}
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        prompt = gateway.engine.tokenizer.decode(list(gateway.engine.submits[-1].prompt_token_ids))
        assert f"assistant\n{text}\n" in prompt


@pytest.mark.parametrize(
    "model", [ChatRequest, CompletionRequest, ResponseRequest, EmbeddingRequest, TokenizeRequest, DetokenizeRequest]
)
def test_null_means_absent(model: type[BaseModel]) -> None:
    required: dict[str, Any] = {
        "messages": MESSAGES, "prompt": "x", "input": "x", "tokens": [1], "model": MODEL_ID,
    }  # fmt: skip
    given = {name: value for name, value in required.items() if name in model.model_fields}
    if model is TokenizeRequest:
        del given["messages"]
    names = {*model.model_json_schema()["properties"], "a_newer_field"} - given.keys()
    assert model.model_validate({**given, **dict.fromkeys(names)}) == model.model_validate(given)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 2}, "best_of"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"structured_outputs": {"regex": "a"}, "guided_choice": ["b"]}, "guided_choice"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": "b"}}, "structured_outputs.whitespace_pattern"),
    ],
)
async def test_what_would_change_the_answer_is_refused(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "messages": MESSAGES, **fields})
    assert error["param"] == param


async def test_what_works_under_names_of_other_clients(gateway: Gateway) -> None:
    async def submitted(**fields: Any) -> Any:
        async with gateway.http() as http:
            body = {"model": MODEL_ID, "messages": MESSAGES, **fields}
            response = await http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return gateway.engine.submits[-1]

    assert (await submitted(n=2, best_of=2)).n == 2
    greedy = (await submitted(top_p=0, temperature=1.5)).sampling
    assert (greedy.temperature, greedy.top_p) == (0, 1)
    assert (await submitted(guided_regex="a+")).grammar.regex == "a+"
    assert (await submitted(guided_json={"type": "object"})).grammar.json_schema == '{"type": "object"}'
    assert list((await submitted(guided_choice=["a", "b"])).grammar.choice.options) == ["a", "b"]
    assert (await submitted(guided_grammar="start: x", guided_decoding_backend="auto")).grammar.lark == "start: x"
    outputs = {"regex": "b", "disable_fallback": True, "disable_any_whitespace": False, "json": None}
    assert (await submitted(structured_outputs=outputs)).grammar.regex == "b"

    async def prompt(*messages: dict[str, Any], **fields: Any) -> str:
        submit = await submitted(messages=[*MESSAGES, *messages], **fields)
        return str(gateway.engine.tokenizer.decode(list(submit.prompt_token_ids), skip_special_tokens=False))

    assert (await prompt(add_generation_prompt=False)).endswith("secret words<|im_end|>\n")
    for text in ("The sea", "", "<|im_end|>"):
        begun = {"role": "assistant", "content": text}
        assert (await prompt(begun, continue_final_message=True)).endswith(f"<|im_start|>assistant\n{text}")


@pytest.mark.parametrize(
    ("url", "given"), [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "x"})]
)
async def test_each_chunk_may_have_the_usage_so_far(gateway: Gateway, url: str, given: dict[str, Any]) -> None:
    gateway.engine.respond_with("one two three")
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with gateway.http() as http:
        body = {"model": MODEL_ID, "stream": True, "stream_options": options, **given}
        frames = (await http.post(url, json=body)).text.split("\n\n")
    used = [json.loads(frame.removeprefix("data: "))["usage"]["completion_tokens"] for frame in frames[:-2]]
    assert used == sorted(used)
    assert 0 < used[0] < used[-1]
