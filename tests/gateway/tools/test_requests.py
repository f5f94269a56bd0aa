"""Invalid tools, choices and messages: rejected with the field's name, before the engine receives them."""

from typing import Any

import pytest

from tests.gateway.routes.inference.test_rejections import MESSAGES, rejected
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


def tool(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def call(id: str = "call_1", **function: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"} | function}


def said(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "secret words"}


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool()]}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [tool()] * 129}, "tools"),
        ({"tools": [{"type": "other", "other": {"name": "f"}}]}, "tools.0.type"),
        ({"tools": [tool() | {"strict": True}]}, "tools.0.strict"),
        ({"tools": [tool("")]}, "tools.0.function.name"),
        ({"tools": [tool("a b")]}, "tools.0.function.name"),
        ({"tools": [tool("f\n")]}, "tools.0.function.name"),
        ({"tools": [tool("x" * 65)]}, "tools.0.function.name"),
        ({"tools": [tool("é")]}, "tools.0.function.name"),
        ({"tools": [tool("a"), tool("b"), tool("a")]}, "tools.2.function.name"),
        ({"tools": [tool(description=5)]}, "tools.0.function.description"),
        ({"tools": [tool(parameters=[])]}, "tools.0.function.parameters"),
        ({"tools": [tool(parameters={"type": "string"})]}, "tools.0.function.parameters"),
        ({"tools": [tool(parameters=nested(40))]}, "tools.0.function.parameters"),
        ({"tools": [tool(parameters={"description": "x" * 70_000})]}, "tools.0.function.parameters"),
        ({"tools": [tool(strict="yes")]}, "tools.0.function.strict"),
        ({"tools": [tool()], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "auto"}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": 5}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [tool()], "tool_choice": tool("g")}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": ALLOWED | {"function": {"name": "f"}}}, "tool_choice.function"),
        ({"tools": [tool("g")], "tool_choice": ALLOWED}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": tool()}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tools": [tool()]}, "tools"),  # the template of these tests does not support tools
    ],
)
async def test_tools(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "messages": MESSAGES, **fields})
    assert error["param"] == param


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "assistant", "content": None}], "messages.1.content"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages.1.content"),
        ([said({"id": "a"})], "messages.1.tool_calls.0.type"),
        ([said(call(arguments={}))], "messages.1.tool_calls.0.function.arguments"),
        ([said(call(name="a b"))], "messages.1.tool_calls.0.function.name"),
        ([said(call(id="x" * 257))], "messages.1.tool_calls.0.id"),
        ([said(*[call(str(i)) for i in range(129)])], "messages.1.tool_calls"),
        ([said(call(), call())], "messages.1.tool_calls"),
        ([said(call())], "messages.1.tool_calls"),
        ([said(call()), MESSAGES[0], result()], "messages.1.tool_calls"),
        ([said(call(), call("call_2")), result()], "messages.1.tool_calls"),
        ([result()], "messages.1.tool_call_id"),
        ([said(call()), result(), result()], "messages.3.tool_call_id"),
        ([said(call()), result("other")], "messages.2.tool_call_id"),
        ([said(call()), {"role": "tool", "content": ""}], "messages.2.tool_call_id"),
        ([said(call()), result() | {"content": None}], "messages.2.content"),
        ([{"role": "user", "content": "", "tool_call_id": "a"}], "messages.1.tool_call_id"),
    ],
)
async def test_messages(gateway: Gateway, messages: list[Any], param: str) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "messages": [*MESSAGES, *messages]})
    assert error["param"] == param


async def test_a_template_without_tools_is_reported(gateway: Gateway) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "messages": MESSAGES, "tools": [tool()]})
    assert error["code"] == "tools_not_supported"
    assert "does not support tools" in error["message"]


async def test_completions_have_no_tools(gateway: Gateway) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "prompt": "a", "tools": [tool()]}, "/v1/completions")
    assert error["param"] == "tools"
