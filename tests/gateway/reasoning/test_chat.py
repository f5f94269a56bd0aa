"""Reasoning through the official client, the real gateway, and a scripted engine."""

from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer

from loragate.gateway.tools.formats.harmony import MARKS
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- if reasoning_effort %}{{- '[' + reasoning_effort + ']' }}{%- endif %}{%- endif %}"""
QUESTION = {"role": "user", "content": "Why?"}
THOUGHT, ANSWER = "First, Größe.\nThen 🙂.", "Because.\n"
TEXT = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_model.byte_level_tokenizer("<think>", "</think>", *MARKS)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 4096, "chat_template": TEMPLATE}


async def chat(gateway: Gateway, messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL_ID, "messages": messages or [QUESTION]} | fields
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json=body)
    answer: dict[str, Any] = response.json()
    return answer | {"status": response.status_code}


def prompt(gateway: Gateway) -> str:
    ids = list(gateway.engine.submits[-1].prompt_token_ids)
    return str(gateway.engine.tokenizer.decode(ids, skip_special_tokens=False))


async def test_a_whole_message(gateway: Gateway) -> None:
    gateway.engine.respond_with(TEXT)
    answer = await chat(gateway)
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": ANSWER,
        "refusal": None,
        "reasoning": THOUGHT,
    }
    ids = gateway.engine.tokenizer.encode(TEXT, add_special_tokens=False).ids
    closing = gateway.engine.tokenizer.token_to_id("</think>")
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": ids.index(closing) + 1}
    assert answer["usage"]["completion_tokens"] == len(ids) + 1


async def test_a_stream(gateway: Gateway) -> None:
    gateway.engine.respond_with(TEXT)
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(
            model=MODEL_ID, messages=[QUESTION], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks if chunk.choices]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == THOUGHT
    assert "".join(delta.get("content") or "" for delta in deltas) == ANSWER
    kinds = [next(iter(delta.keys() - {"role"}), None) for delta in deltas if delta]
    assert kinds == sorted(kinds, key=lambda kind: kind == "content" and kinds.index(kind) > 0), "the thought is first"
    details = chunks[-1].usage.completion_tokens_details
    assert details.reasoning_tokens > 0


async def test_stop_strings_and_logprobs_are_those_of_the_answer(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"<think>STOP</think>\n\nNo STOP {ANSWER}")
    answer = await chat(gateway, stop=["STOP"])
    message = answer["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("STOP", "No ")


async def test_reasoning_may_be_left_out(gateway: Gateway) -> None:
    gateway.engine.respond_with(TEXT)
    answer = await chat(gateway, include_reasoning=False)
    assert "reasoning" not in answer["choices"][0]["message"]
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


@pytest.mark.asyncio(loop_scope="function")
async def test_both_names_by_setting(config: Any, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    async with serving(replace(config, reasoning_content=True), engine, tenants) as gateway:
        await gateway.until_ready()
        engine.respond_with(TEXT)
        message = (await chat(gateway))["choices"][0]["message"]
        assert message["reasoning"] == message["reasoning_content"] == THOUGHT


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_history_reaches_the_template_under_either_name(gateway: Gateway, name: str) -> None:
    history = [QUESTION, {"role": "assistant", "content": ANSWER, name: THOUGHT}, QUESTION]
    assert (await chat(gateway, history))["status"] == 200
    assert f"<|im_start|>assistant\n<think>\n{THOUGHT}\n</think>\n\n{ANSWER}<|im_end|>" in prompt(gateway)
    refused = await chat(gateway, [{"role": "user", "content": "x", name: THOUGHT}])
    assert refused["status"] == 400
    assert refused["error"]["param"] == "messages.0.reasoning"


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({}, "assistant\n"),
        ({"enable_thinking": False}, "</think>\n\n"),
        ({"thinking": {"type": "disabled"}}, "</think>\n\n"),
        ({"reasoning_effort": "none"}, "[none]"),
        ({"reasoning_effort": "high"}, "[high]"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "</think>\n\n"),
        ({"chat_template_kwargs": {"reasoning_effort": "own"}}, "[own]"),
        ({"chat_template_kwargs": {"thinking": True}}, "assistant\n"),
    ],
)
async def test_the_caller_s_switches(gateway: Gateway, fields: dict[str, Any], end: str) -> None:
    assert (await chat(gateway, **fields))["status"] == 200
    assert prompt(gateway).endswith(end)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"unknown": 1}}, "chat_template_kwargs.unknown"),
        ({"chat_template_kwargs": {"enable_thinking": {"a": 1}}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"reasoning_effort": "x" * 300}}, "chat_template_kwargs.reasoning_effort"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"thinking_token_budget": 1, "thinking": {"budget_tokens": 2}}, "thinking"),
    ],
)
async def test_bad_values_name_the_field(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    refused = await chat(gateway, **fields)
    assert refused["status"] == 400
    assert refused["error"]["param"].startswith(param)


async def test_a_variable_cannot_spell_a_special_token(gateway: Gateway) -> None:
    await chat(gateway, chat_template_kwargs={"reasoning_effort": "<|im_end|>"})
    end = gateway.engine.tokenizer.token_to_id("<|im_end|>")
    assert list(gateway.engine.submits[-1].prompt_token_ids).count(end) == 1


@pytest.mark.parametrize(
    "fields", [{"thinking_token_budget": 7}, {"thinking": {"type": "enabled", "budget_tokens": 7}}]
)
async def test_a_budget_reaches_the_engine(gateway: Gateway, fields: dict[str, Any]) -> None:
    await chat(gateway, **fields)
    thinking = gateway.engine.submits[-1].thinking
    assert (thinking.max_tokens, thinking.open) == (7, False)
    assert list(thinking.end_marker) == [gateway.engine.tokenizer.token_to_id("</think>")]


async def test_a_grammar_begins_after_the_thought(gateway: Gateway) -> None:
    await chat(gateway, response_format={"type": "json_object"})
    submit = gateway.engine.submits[-1]
    assert submit.grammar.json_object
    assert submit.HasField("thinking")
    assert not submit.thinking.HasField("max_tokens")
    await chat(gateway)
    assert not gateway.engine.submits[-1].HasField("thinking")


async def test_completions_show_all_text(gateway: Gateway) -> None:
    gateway.engine.respond_with("<think>x</think>y")
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt="Why?")
    assert answer.choices[0].text.endswith("y")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


async def test_responses(gateway: Gateway) -> None:
    gateway.engine.respond_with(TEXT)
    async with gateway.openai() as client:
        response = await client.responses.create(
            model=MODEL_ID, input="Why?", reasoning={"effort": "high", "summary": "auto"}
        )
        thought, message = response.output
        assert thought.type == "reasoning"
        assert [part.text for part in thought.content] == [part.text for part in thought.summary] == [THOUGHT]
        assert message.content[0].text == ANSWER
        assert response.usage.output_tokens_details.reasoning_tokens > 0
        assert (response.reasoning.effort, response.reasoning.summary) == ("high", "auto")
        assert prompt(gateway).endswith("[high]")

        items = [{"role": "user", "content": "Why?"}, *(item.model_dump() for item in response.output)]
        await client.responses.create(model=MODEL_ID, input=[*items, {"role": "user", "content": "Really?"}])
    assert f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}<|im_end|>" in prompt(gateway)


async def test_a_response_s_stream(gateway: Gateway) -> None:
    gateway.engine.respond_with(TEXT)
    asked: Any = {"model": MODEL_ID, "input": "Why?", "reasoning": {"summary": "auto"}}
    async with gateway.openai() as client, client.responses.stream(**asked) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    types = [event.type for event in events]
    for kind in ("reasoning_text.delta", "reasoning_summary_text.delta", "reasoning_summary_part.done"):
        assert f"response.{kind}" in types
    for kind in ("reasoning_text", "reasoning_summary_text"):
        pieces = [event.delta for event in events if event.type == f"response.{kind}.delta"]
        assert "".join(pieces) == THOUGHT
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in final.output] == ["reasoning", "message"]


HARMONY = """{%- for message in messages %}
{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
{%- endfor %}{%- if tools %}{{- tools | tojson }}{%- endif %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}{# '<|channel|>' #}"""
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


async def test_harmony_through_the_api(tokenizer: Tokenizer, tmp_path: Any) -> None:
    async with stub_engine(tokenizer, max_model_len=4096, chat_template=HARMONY) as engine:
        config = await new_config(tmp_path, engine)
        async with serving(config, engine, await new_tenants(config)) as gateway:
            await gateway.until_ready()
            engine.respond_with(
                f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}"
            )
            message = (await chat(gateway))["choices"][0]["message"]
            assert (message["reasoning"], message["content"]) == (THOUGHT, ANSWER)

            engine.respond_with(
                f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary "
                'to=functions.weather <|constrain|>json<|message|>{"city": "Ulm"}<|call|>'
            )
            choice = (await chat(gateway, tools=TOOLS))["choices"][0]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["reasoning"] == THOUGHT
            assert choice["message"]["content"] is None
            assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Ulm"}'}

            await chat(gateway, response_format={"type": "json_object"})
            assert "final" in engine.submits[-1].grammar.lark
            refused = await chat(gateway, structured_outputs={"regex": "a+"})
            assert refused["status"] == 400
            assert refused["error"]["param"] == "structured_outputs"
