"""`response_format` and `structured_outputs`: the grammar sent to the engine, and what is rejected."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import BadRequestError
from tokenizers import Tokenizer

from loragate.v1 import engine_pb2 as pb
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.routes.inference.test_rejections import MESSAGES, rejected
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.tools.test_requests import nested, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {}}, "required": ["z"]}


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA} | fields}


async def sent_grammar(gateway: Gateway, **fields: Any) -> pb.Grammar:
    """Return the grammar that the engine received."""
    gateway.engine.respond_with("{}")
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json={"model": MODEL_ID, "messages": MESSAGES, **fields})
    assert response.status_code == 200, response.text
    return gateway.engine.submits[-1].grammar


@pytest.mark.parametrize("strict", [{}, {"strict": True}, {"strict": False}, {"strict": None, "description": "x"}])
async def test_a_schema_reaches_the_engine_in_its_own_order(gateway: Gateway, strict: dict[str, Any]) -> None:
    grammar = await sent_grammar(gateway, response_format=json_schema(**strict))
    assert json.loads(grammar.json_schema) == SCHEMA
    assert list(json.loads(grammar.json_schema)["properties"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "text"}}, pb.Grammar()),
        ({"response_format": None, "structured_outputs": None}, pb.Grammar()),
        ({"response_format": {"type": "json_object"}}, pb.Grammar(json_object=True)),
        ({"response_format": json_schema(schema=None)}, pb.Grammar(json_object=True)),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, pb.Grammar(json_schema=json.dumps(SCHEMA))),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, pb.Grammar(json_schema=json.dumps(SCHEMA))),
        ({"structured_outputs": {"regex": "[a-c]+"}}, pb.Grammar(regex="[a-c]+")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, pb.Grammar(choice=pb.Choice(options=["yes", "no"]))),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, pb.Grammar(lark='start: "a"')),
        ({"structured_outputs": {"json_object": True}}, pb.Grammar(json_object=True)),
        ({"structured_outputs": {"json": {"type": "null"}}}, pb.Grammar(json_schema='{"type": "null"}')),
        ({"structured_outputs": {"json": '{"type": "null"}'}}, pb.Grammar(json_schema='{"type": "null"}')),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "text"}},
            pb.Grammar(regex="a"),
        ),
        (
            {"response_format": {"type": "json_object"}, "tools": [tool()], "tool_choice": "none"},
            pb.Grammar(json_object=True),
        ),
    ],
)
async def test_each_form_is_a_grammar(gateway: Gateway, fields: dict[str, Any], grammar: pb.Grammar) -> None:
    assert await sent_grammar(gateway, **fields) == grammar


async def test_completions_accept_both_fields(gateway: Gateway) -> None:
    async with gateway.http() as http:
        for fields in ({"structured_outputs": {"regex": "a"}}, {"response_format": {"type": "json_object"}}):
            body = {"model": MODEL_ID, "prompt": ["a", "b"], **fields}
            assert (await http.post("/v1/completions", json=body)).status_code == 200
    assert [submit.grammar.regex for submit in gateway.engine.submits[:2]] == ["a", "a"]
    assert all(submit.grammar.json_object for submit in gateway.engine.submits[2:])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "text", "json_schema": {"name": "a"}}}, "response_format.json_schema"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema"),
        ({"response_format": json_schema() | {"value": SCHEMA}}, "response_format.value"),
        ({"response_format": {"type": "json_object", "value": nested(40)}}, "response_format.value"),
        ({"response_format": {"type": "json_object", "value": {}, "schema": {}}}, "response_format.value"),
        ({"response_format": json_schema(name=None)}, "response_format.json_schema.name"),
        ({"response_format": json_schema(name="a b")}, "response_format.json_schema.name"),
        ({"response_format": json_schema(name="x" * 65)}, "response_format.json_schema.name"),
        ({"response_format": json_schema(schema=[])}, "response_format.json_schema.schema"),
        ({"response_format": json_schema(schema=nested(40))}, "response_format.json_schema.schema"),
        ({"response_format": json_schema(schema={"title": "x" * 70_000})}, "response_format.json_schema.schema"),
        ({"response_format": json_schema(strict="yes")}, "response_format.json_schema.strict"),
        ({"response_format": json_schema(flavour=1)}, "response_format.json_schema.flavour"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a" * 9000}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a"] * 1025}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice.0"),
        ({"structured_outputs": {"choice": [7]}}, "structured_outputs.choice.0"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs.json"),
        ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
    ],
)
async def test_each_rejection_names_its_field(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    assert (await rejected(gateway, {"model": MODEL_ID, "messages": MESSAGES, **fields}))["param"] == param


@pytest.mark.parametrize("stream", [False, True])
async def test_a_rejection_by_the_engine_names_the_field_too(gateway: Gateway, stream: bool) -> None:
    gateway.engine.failure = pb.EngineError(
        code=pb.ERROR_CODE_INVALID_REQUEST, message='the grammar cannot be used: Unimplemented keys: ["not"]'
    )
    gateway.engine.fails = lambda submit: True
    async with gateway.openai() as client:
        with pytest.raises(BadRequestError) as caught:
            await client.chat.completions.create(
                model=MODEL_ID, messages=MESSAGES, response_format=json_schema(), stream=stream
            )
    assert caught.value.param == "response_format"
    assert '"not"' in caught.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_the_last_token_of_a_grammar_is_text(gateway: Gateway, stream: bool) -> None:
    gateway.engine.respond_with("yes")
    gateway.engine.ends_with_text = True
    tokens = len(gateway.engine.script(pb.Submit()))
    async with gateway.openai() as client:
        extra = {"structured_outputs": {"choice": ["yes", "no"]}}
        if not stream:
            whole = await client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, extra_body=extra)
            assert whole.choices[0].message.content == "yes"
            assert whole.choices[0].finish_reason == "stop"
            assert whole.usage is not None
            assert whole.usage.completion_tokens == tokens
            return
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model=MODEL_ID, messages=MESSAGES, stream=True, extra_body=extra
            )
        ]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "yes"
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_stop_strings_still_apply(gateway: Gateway) -> None:
    gateway.engine.respond_with('{"a": "STOP"}')
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(
            model=MODEL_ID, messages=MESSAGES, response_format={"type": "json_object"}, stop="STOP"
        )
    assert answer.choices[0].message.content == '{"a": "'
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.asyncio(loop_scope="function")
class TestWithTools:
    @pytest.fixture
    async def engine(self, tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
        async with stub_engine(tokenizer, chat_template="{{ tools }}{{ messages[0].content }}") as stub:
            yield stub

    @pytest.fixture
    def gateway(self, own_gateway: Gateway) -> Gateway:
        return own_gateway

    async def test_calls_remain_possible_with_a_format(self, gateway: Gateway) -> None:
        """Where a call is forced, there is no message to constrain."""
        either = await sent_grammar(gateway, response_format=json_schema(), tools=[tool("weather")])
        assert '"z"' in either.lark
        assert "weather" in either.lark
        forced = await sent_grammar(
            gateway, response_format=json_schema(), tools=[tool("weather")], tool_choice="required"
        )
        assert '"z"' not in forced.lark
        assert "weather" in forced.lark

    async def test_other_forms_exclude_calls(self, gateway: Gateway) -> None:
        body = {"model": MODEL_ID, "messages": MESSAGES, "tools": [tool()], "structured_outputs": {"regex": "a"}}
        assert (await rejected(gateway, body))["param"] == "structured_outputs"
