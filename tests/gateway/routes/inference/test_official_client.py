"""How the official client handles our errors, and its helpers our streams."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ParsedFunctionToolCall
from pydantic import BaseModel
from tokenizers import Tokenizer

from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.routes.inference.test_openai_types import CALL
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

CHAT: dict[str, Any] = {"model": MODEL_ID, "messages": [{"role": "user", "content": "What is the weather?"}]}


class weather(BaseModel):
    """Return the weather."""

    city: str


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, max_model_len=1024, chat_template=tiny_model.TOOLS_TEMPLATE) as stub:
        yield stub


async def test_errors_become_its_exceptions(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        url = f"/admin/v1/tenants/{gateway.tenant_id}/keys"
        reader = (await admin.post(url, json={"scopes": ["adapters:read"]})).json()["secret"]
    gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_OVERLOADED, message="it is so", retry_after_ms=2300)
    gateway.engine.fails = lambda submit: submit.sampling.seed == 1
    rejected: list[tuple[type[openai.APIStatusError], str, dict[str, Any], str, str | None]] = [
        (openai.BadRequestError, gateway.key, {"temperature": 9}, "invalid_value", "temperature"),
        (openai.BadRequestError, gateway.key, {"extra_body": {"tempreture": 1}}, "unknown_parameter", "tempreture"),
        (openai.AuthenticationError, "lg-no-key", {}, "invalid_api_key", None),
        (openai.PermissionDeniedError, reader, {}, "insufficient_scope", None),
        (openai.NotFoundError, gateway.key, {"model": "nobodys"}, "model_not_found", "model"),
        (openai.InternalServerError, gateway.key, {"seed": 1}, "overloaded", None),
        (openai.InternalServerError, gateway.key, {"seed": 1, "stream": True}, "overloaded", None),
    ]
    for kind, key, fields, code, param in rejected:
        async with gateway.openai(key) as client:
            with pytest.raises(kind) as caught:
                await client.chat.completions.create(**CHAT | fields)
        assert (caught.value.code, caught.value.param) == (code, param)
        assert caught.value.type
        assert caught.value.request_id == caught.value.response.headers["x-request-id"]


async def test_it_retries_until_the_engine_has_room(gateway: Gateway) -> None:
    gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_OVERLOADED, message="it is so", retry_after_ms=20)
    gateway.engine.fails = lambda submit: len(gateway.engine.submits) < 3
    gateway.engine.respond_with("It is fine.")
    async with gateway.openai(max_retries=2) as client:
        answer = await client.chat.completions.create(**CHAT)
    assert answer.choices[0].message.content == "It is fine."
    assert len(gateway.engine.submits) == 3


async def test_an_error_in_the_middle_of_a_stream_is_raised(gateway: Gateway) -> None:
    gateway.engine.pause_after = 3
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(**CHAT, stream=True)
        await anext(stream)
        await gateway.engine.kill()
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert caught.value.code == "engine_unavailable"


async def test_its_helpers_parse_schemas_and_tools(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        gateway.engine.respond_with('{"city": "Oslo"}')
        parsed = await client.chat.completions.parse(**CHAT, response_format=weather)
        assert parsed.choices[0].message.parsed == weather(city="Oslo")
        assert "city" in gateway.engine.submits[-1].grammar.json_schema
        gateway.engine.respond_with(CALL)
        tools = [openai.pydantic_function_tool(weather)]
        async with client.chat.completions.stream(**CHAT, tools=tools) as stream:
            events = [event.type async for event in stream]
            final = await stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert isinstance(call, ParsedFunctionToolCall)
    assert call.function.parsed_arguments == weather(city="Oslo")
    assert "tool_calls.function.arguments.done" in events
