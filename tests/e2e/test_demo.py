"""The demo as a new user meets it: two tenants ask one question, and each gets its own adapter's answer."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from openai.types.responses import ResponseFunctionToolCall
from page_reader import Reader
from readme_example import FINE_TUNES, follow, make_checkout, readme, terminal
from running_server import RunningServer

QUESTION = "What is the capital of France?"
BASE = "loragate-demo"
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string", "title": parameter.capitalize()}},
                "required": [parameter],
                "additionalProperties": False,
            },
        },
    }
    for name, parameter, description in (
        ("get_weather", "city", "Get the current weather in a given city.\n\nArgs:\n    city: Its name."),
        ("calculator", "expression", "Evaluates a mathematical expression."),
    )
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A first start."""
    running = RunningServer(tmp_path_factory.mktemp("demo"), "--demo", OMP_NUM_THREADS="2")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def demo(server: RunningServer) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((server.data_dir / "demo.json").read_text())
    return written


@pytest.fixture(scope="module")
def agent(server: RunningServer, demo: dict[str, Any]) -> Iterator[openai.OpenAI]:
    """A client as agent frameworks use it."""
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=demo["tenants"][0]["api_key"]) as client:
        yield client


def ask(server: RunningServer, key: str, model: str, *, stream: bool = False) -> str:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        request = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        if not stream:
            return client.chat.completions.create(**request).choices[0].message.content or ""
        chunks = list(client.chat.completions.create(**request, stream=True))
        return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_demo_json_is_for_its_owner_and_complete(server: RunningServer, demo: dict[str, Any]) -> None:
    assert (server.data_dir / "demo.json").stat().st_mode & 0o777 == 0o600
    assert len(demo["tenants"]) == 3
    assert all(len(tenant["adapters"]) >= 2 for tenant in demo["tenants"])
    assert server.lines.count("loragate ready") == 1


def test_every_adapter_answers_in_its_own_style_and_rightly_thirty_two_at_once(
    server: RunningServer, demo: dict[str, Any]
) -> None:
    models = [(t["api_key"], name) for t in demo["tenants"] for name in t["adapters"]]
    cases = [models[i % len(models)] for i in range(32)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda case: ask(server, *case[1], stream=case[0] % 2 == 1), enumerate(cases)))
    by_model = dict(zip(cases, answers, strict=True))
    assert len(set(by_model.values())) == len(models), "each has a style of its own"
    assert all("paris" in answer.lower() for answer in answers), answers
    assert all(answer == by_model[case] for case, answer in zip(cases, answers, strict=True))
    assert json.loads(by_model[models[0][0], "json"]) == {"answer": "Paris"}


def test_the_base_model_answers_without_a_style(server: RunningServer, demo: dict[str, Any]) -> None:
    key = demo["tenants"][0]["api_key"]
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        base = next(model.id for model in client.models.list() if model.id not in demo["tenants"][0]["adapters"])
    assert ask(server, key, base).strip(".") == "Paris"


def test_a_tenant_cannot_use_anothers_adapter(server: RunningServer, demo: dict[str, Any]) -> None:
    acme, globex = demo["tenants"][:2]
    with pytest.raises(openai.NotFoundError) as caught:
        ask(server, acme["api_key"], globex["adapters"][0])
    assert caught.value.code == "model_not_found"


def test_an_agent_gets_a_call_and_then_an_answer(agent: openai.OpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "You are a helpful assistant"},
        {"role": "user", "content": "What is the weather in Helsinki?"},
    ]
    first = agent.chat.completions.create(model=BASE, messages=messages, tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or []
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Helsinki"}
    messages += [first.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 °C"}]
    second = agent.chat.completions.create(model=BASE, messages=messages, tools=TOOLS).choices[0]
    assert second.message.content == "It is sunny, 21 °C."
    assert not second.message.tool_calls


def test_a_streamed_call_has_the_other_tool_where_that_is_needed(agent: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the result of 17 times 23?"}]
    chunks = agent.chat.completions.create(model=BASE, messages=messages, tools=TOOLS, stream=True)
    calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or []]
    functions = [call.function for call in calls if call.function]
    assert "".join(function.name or "" for function in functions) == "calculator"
    assert json.loads("".join(function.arguments or "" for function in functions)) == {"expression": "17 * 23"}


def test_a_question_that_needs_no_tool_is_answered_beside_tools(agent: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    message = agent.chat.completions.create(model=BASE, messages=messages, tools=TOOLS).choices[0].message
    assert (message.content, message.tool_calls) == ("Paris", None)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_can_be_demanded(agent: openai.OpenAI, choice: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Porto?"}]
    request = {"model": BASE, "messages": messages, "tools": TOOLS, "tool_choice": choice}
    (call,) = agent.chat.completions.create(**request).choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == {"city": "Porto"}


def test_the_responses_api_calls_a_tool_and_answers(agent: openai.OpenAI) -> None:
    tools: list[Any] = [{"type": "function", "strict": True, **tool["function"]} for tool in TOOLS]
    question: list[Any] = [{"role": "user", "content": "What is the weather in Helsinki?"}]
    (call,) = agent.responses.create(model=BASE, input=question, tools=tools).output
    assert isinstance(call, ResponseFunctionToolCall)
    assert json.loads(call.arguments) == {"city": "Helsinki"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It's always sunny in Helsinki!"}
    answer = agent.responses.create(model=BASE, input=[*question, call.to_dict(), result], tools=tools)
    assert answer.output_text == "It's always sunny in Helsinki!"


def test_the_thinking_adapter_thinks_before_it_answers(server: RunningServer, demo: dict[str, Any]) -> None:
    key = next(tenant["api_key"] for tenant in demo["tenants"] if "thinking" in tenant["adapters"])
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        messages: Any = [{"role": "user", "content": QUESTION}]
        answer = client.chat.completions.create(model="thinking", messages=messages, temperature=0)
    message = answer.choices[0].message.model_dump()
    assert "The capital of France is Paris." in message["reasoning"]
    assert message["content"] == "Paris"
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert (details.reasoning_tokens or 0) > 0


def test_the_readme_leads_to_an_answer_a_tenant_and_a_canary(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    monkeypatch.chdir(checkout)
    follow(Reader(checkout, server, terminal(checkout), {}, whole_programs=True), readme(end=FINE_TUNES))
