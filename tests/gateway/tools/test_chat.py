"""Tools through the official client, the real gateway, and a scripted engine."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncStream
from openai.types.chat import ChatCompletionChunk
from tokenizers import Tokenizer

from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.tool_transcripts import NASTY, TOOLS

TEMPLATE = """{%- if tools %}
{{- '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

DEFINED = [
    {"type": "function", "function": {"name": name, "description": f"Tells {name}.", "parameters": schema}}
    for name, schema in TOOLS.items()
]
QUESTION = {"role": "user", "content": "Wie wird das Wetter?"}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {NASTY}}}\n</tool_call>'
OTHER_CALL = '<tool_call>\n{"name": "time-of_day", "arguments": {}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture
def template() -> str:
    return TEMPLATE


@pytest.fixture
async def engine(tokenizer: Tokenizer, template: str) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, max_model_len=4096, chat_template=template) as stub:
        yield stub


async def ask(gateway: Gateway, messages: list[Any] | None = None, **fields: Any) -> Any:
    fields = {"model": MODEL_ID, "messages": messages or [QUESTION], "tools": DEFINED} | fields
    async with gateway.openai() as client:
        return await client.chat.completions.create(**fields)


async def chunks_of(gateway: Gateway, **fields: Any) -> list[ChatCompletionChunk]:
    fields = {"model": MODEL_ID, "messages": [QUESTION], "tools": DEFINED, "stream": True} | fields
    async with gateway.openai() as client:
        stream: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(**fields)
        return [chunk async for chunk in stream]


def prompt(gateway: Gateway) -> str:
    ids = list(gateway.engine.submits[-1].prompt_token_ids)
    return str(gateway.engine.tokenizer.decode(ids, skip_special_tokens=False))


async def test_a_whole_conversation(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"Let me see.\n{CALL}\n{OTHER_CALL}")
    answer = await ask(gateway)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    first, second = choice.message.tool_calls
    assert (first.type, first.function.name, first.function.arguments) == ("function", "weather", NASTY)
    assert (second.function.name, second.function.arguments) == ("time-of_day", "{}")
    assert first.id != second.id
    assert f"tools\n{json.dumps(DEFINED, ensure_ascii=False)}<|im_end|>" in prompt(gateway)
    said = gateway.engine.tokenizer.encode(f"Let me see.\n{CALL}\n{OTHER_CALL}", add_special_tokens=False).ids
    assert answer.usage.completion_tokens == len(said) + 1

    gateway.engine.respond_with("It rains.")
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in (second, first)]
    answer = await ask(gateway, [QUESTION, choice.message.model_dump(exclude_none=True), *results])
    assert answer.choices[0].message.content == "It rains."
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    arguments = json.dumps(json.loads(NASTY), ensure_ascii=False)  # parsed, so that the template can write them
    assert (
        f'<|im_start|>assistant\nLet me see.\n<tool_call>{{"name": "weather", "arguments": {arguments}}}</tool_call>\n'
        '<tool_call>{"name": "time-of_day", "arguments": {}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"
    ) in prompt(gateway)


async def test_content_is_null_with_calls_only(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    async with gateway.http() as http:
        body = {"model": MODEL_ID, "messages": [QUESTION], "tools": DEFINED}
        message = (await http.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
    assert message["content"] is None
    assert message.keys() == {"role", "content", "refusal", "tool_calls"}
    (call,) = message["tool_calls"]
    assert call.keys() == {"id", "type", "function"}


async def test_deltas_are_openais(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"{CALL}\n{OTHER_CALL}")
    chunks = await chunks_of(gateway, stream_options={"include_usage": True})
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": None}
    assert all("role" not in delta and "content" not in delta for delta in deltas[1:])
    begins = [position for position, delta in enumerate(deltas) if "id" in delta.get("tool_calls", [{}])[0]]
    assert [deltas[position]["tool_calls"][0].keys() for position in begins] == [
        {"index", "id", "type", "function"}
    ] * 2
    assert [deltas[position]["tool_calls"][0]["function"] for position in begins] == [
        {"name": "weather", "arguments": ""},
        {"name": "time-of_day", "arguments": ""},
    ]
    fragments = [delta["tool_calls"][0] for delta in deltas[begins[0] + 1 : begins[1]]]
    assert len(fragments) > 10
    assert all(fragment.keys() == {"index", "function"} and fragment["index"] == 0 for fragment in fragments)
    assert "".join(fragment["function"]["arguments"] for fragment in fragments) == NASTY
    assert deltas[-1] == {}
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["tool_calls"]
    assert chunks[-1].usage.completion_tokens > 0


async def test_the_clients_own_stream_helper_assembles_it(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"Well.\n{CALL}")
    async with (
        gateway.openai() as client,
        client.chat.completions.stream(model=MODEL_ID, messages=[QUESTION], tools=DEFINED) as stream,
    ):
        final = await stream.get_final_completion()
    (choice,) = final.choices
    assert choice.message.content == "Well."
    assert choice.message.tool_calls[0].function.arguments == NASTY
    assert choice.finish_reason == "tool_calls"


async def test_each_choice_has_its_own_calls(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    whole = await ask(gateway, n=3)
    ids = {choice.message.tool_calls[0].id for choice in whole.choices}
    assert len(ids) == 3
    arguments = {0: "", 1: "", 2: ""}
    for chunk in await chunks_of(gateway, n=3):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or ():
                arguments[choice.index] += call.function.arguments
    assert set(arguments.values()) == {NASTY}


async def test_malformed_calls_are_content(gateway: Gateway) -> None:
    text = 'So: <tool_call>{"name": "nothing", "arguments": {}}</tool_call>\n'
    gateway.engine.respond_with(text)
    answer = await ask(gateway)
    assert answer.choices[0].message.content == text
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    streamed = await chunks_of(gateway)
    assert streamed[0].choices[0].delta.content == ""
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text


@pytest.mark.parametrize("fields", [{"tools": None}, {"tool_choice": "none"}])
async def test_without_tools_text_stays_text(gateway: Gateway, fields: dict[str, Any]) -> None:
    gateway.engine.respond_with(CALL)
    answer = await ask(
        gateway, **({} if fields == {"tools": None} else fields), **({"tools": []} if "tools" in fields else {})
    )
    assert answer.choices[0].message.content == CALL
    assert "tools\n[" not in prompt(gateway)


async def test_a_call_truncated_by_the_limit(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    answer = await ask(gateway, max_tokens=80)
    (choice,) = answer.choices
    assert choice.finish_reason == "length"
    assert NASTY.startswith(choice.message.tool_calls[0].function.arguments)


async def test_one_call_where_parallel_calls_are_disabled(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"{CALL}\n{OTHER_CALL}")
    answer = await ask(gateway, parallel_tool_calls=False)
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["weather"]


@pytest.mark.parametrize(
    ("choice", "reason"), [("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop")], ids=str
)
async def test_finish_reasons(gateway: Gateway, choice: Any, reason: str) -> None:
    """OpenAI's finish reason depends on whether the caller or the model chose the function."""
    gateway.engine.respond_with(CALL)
    answer = await ask(gateway, tool_choice=choice)
    assert answer.choices[0].finish_reason == reason
    assert len(answer.choices[0].message.tool_calls) == 1
    assert (await chunks_of(gateway, tool_choice=choice))[-1].choices[0].finish_reason == reason
    assert gateway.engine.submits[-1].HasField("grammar") == (choice != "auto")


async def test_allowed_tools(gateway: Gateway) -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    gateway.engine.respond_with(f"{OTHER_CALL}{CALL}")
    answer = await ask(gateway, tool_choice=allowed)
    assert answer.choices[0].message.content == OTHER_CALL
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["weather"]
    assert "time-of_day" not in prompt(gateway)
    assert not gateway.engine.submits[-1].HasField("grammar")
    allowed["allowed_tools"]["mode"] = "required"
    await ask(gateway, tool_choice=allowed)
    assert "time-of_day" not in gateway.engine.submits[-1].grammar.lark


async def test_logprobs_cover_every_token(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    chunks = await chunks_of(gateway, logprobs=True)
    sent = [
        token for chunk in chunks for choice in chunk.choices if choice.logprobs for token in choice.logprobs.content
    ]
    assert b"".join(bytes(token.bytes) for token in sent).decode() == CALL
    whole = await ask(gateway, logprobs=True)
    assert [token.token for token in whole.choices[0].logprobs.content] == [token.token for token in sent]


class TestSpecialTokens:
    """The template's tool format consists of tokens that have no text."""

    @pytest.fixture(scope="class")
    def tokenizer(self) -> Tokenizer:
        return tiny_model.byte_level_tokenizer("[TOOL_CALLS]", "[ARGS]", "[OTHER]")

    @pytest.fixture
    def template(self) -> str:
        return TEMPLATE.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "[ARGS]")

    async def test_they_are_parsed_but_not_shown(self, gateway: Gateway) -> None:
        gateway.engine.respond_with(f"Hm.[OTHER][TOOL_CALLS]weather[ARGS]{NASTY}")
        answer = await ask(gateway)
        assert answer.choices[0].message.content == "Hm."
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.arguments == NASTY

    async def test_without_tools_they_are_dropped(self, gateway: Gateway) -> None:
        gateway.engine.respond_with("Hm.[OTHER][TOOL_CALLS]weather")
        answer = await ask(gateway, tool_choice="none")
        assert answer.choices[0].message.content == "Hm.weather"

    async def test_a_grammar_names_them_by_id(self, gateway: Gateway) -> None:
        gateway.engine.respond_with("[TOOL_CALLS]weather[ARGS]{}")
        await ask(gateway, tool_choice=NAMED)
        ids = [gateway.engine.tokenizer.token_to_id(token) for token in ("[TOOL_CALLS]", "[ARGS]")]
        assert f'<[{ids[0]}]> "weather" <[{ids[1]}]>' in gateway.engine.submits[-1].grammar.lark


FUNCTIONS = [tool["function"] for tool in DEFINED]


async def test_functions_are_the_older_name_of_tools(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"{CALL}\n{OTHER_CALL}")
    answer = await ask(gateway, tools=None, functions=FUNCTIONS, function_call="auto")
    (choice,) = answer.choices
    assert choice.finish_reason == "function_call"
    assert choice.message.tool_calls is None
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == ("weather", NASTY)
    assert f"tools\n{json.dumps(DEFINED, ensure_ascii=False)}<|im_end|>" in prompt(gateway)
    sent_back = [
        QUESTION,
        choice.message.model_dump(),
        {"role": "function", "name": "weather", "content": "rain"},
    ]
    gateway.engine.respond_with("It rains.")
    answer = await ask(gateway, sent_back, tools=None, functions=FUNCTIONS)
    assert answer.choices[0].message.content == "It rains."
    assert "</tool_call><|im_end|>\n<|im_start|>tool\nrain<|im_end|>" in prompt(gateway)


async def test_deltas_of_a_function_call(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    chunks = await chunks_of(gateway, tools=None, functions=FUNCTIONS)
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks]
    assert deltas[1] == {"function_call": {"name": "weather", "arguments": ""}}
    assert "".join(delta["function_call"]["arguments"] for delta in deltas[1:-1]) == NASTY
    assert chunks[-1].choices[0].finish_reason == "function_call"


async def test_a_named_function_is_forced_and_none_forbids(gateway: Gateway) -> None:
    gateway.engine.respond_with(CALL)
    answer = await ask(gateway, tools=None, functions=FUNCTIONS, function_call={"name": "weather"})
    assert answer.choices[0].message.function_call.name == "weather"
    assert gateway.engine.submits[-1].grammar.lark
    await ask(gateway, tools=None, functions=FUNCTIONS, function_call="none")
    assert "tools" not in prompt(gateway)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": FUNCTIONS}, "functions"),
        ({"tools": None, "functions": FUNCTIONS * 2}, "functions.2.name"),
        ({"tools": None, "functions": FUNCTIONS, "function_call": {"name": "nothing"}}, "function_call"),
        ({"tools": None, "function_call": {"name": "weather"}}, "function_call"),
        ({"messages": [QUESTION, {"role": "function", "name": "weather", "content": ""}]}, "messages.1.name"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "weather"}}]}, "messages.0.function_call"),
    ],
)
async def test_bad_functions_are_named(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL_ID, "messages": [QUESTION], "tools": DEFINED, **fields}
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text


# custom tools, whose input is a text

PATCH = {
    "type": "custom",
    "custom": {
        "name": "patch",
        "description": "Changes files.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "+" /.+/'}},
    },
}
PATCH_CALL = '<tool_call>\n{"name": "patch", "arguments": {"input": "+a\\n\\"b\\""}}\n</tool_call>'
WORD = {"type": "custom", "custom": {"name": "word", "format": {"type": "grammar", "grammar": {"syntax": "regex"}}}}


async def test_a_custom_tool_is_called_with_a_text_and_its_result_sent_back(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"{PATCH_CALL}\n{CALL}")
    answer = await ask(gateway, tools=[PATCH, *DEFINED])
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    patch, weather = choice.message.tool_calls
    assert (patch.type, patch.custom.name, patch.custom.input) == ("custom", "patch", '+a\n"b"')
    assert (weather.type, weather.function.arguments) == ("function", NASTY)
    assert "The input must match this Lark grammar:" in prompt(gateway)
    assert '"required": ["input"]' in prompt(gateway)

    gateway.engine.respond_with("Done.")
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in (patch, weather)]
    answer = await ask(gateway, [QUESTION, choice.message.model_dump(exclude_none=True), *results], tools=[PATCH])
    assert answer.choices[0].message.content == "Done."
    assert '<tool_call>{"name": "patch", "arguments": {"input": "+a\\n\\"b\\""}}</tool_call>' in prompt(gateway)


async def test_deltas_of_a_custom_tools_call(gateway: Gateway) -> None:
    gateway.engine.respond_with(f"{PATCH_CALL}\n{CALL}")
    chunks = await chunks_of(gateway, tools=[PATCH, *DEFINED])
    pieces = [
        piece
        for chunk in chunks
        for piece in chunk.choices[0].delta.model_dump(exclude_unset=True).get("tool_calls", ())
    ]
    first, second, *rest = pieces
    assert (first["index"], first["type"], first["custom"]) == (0, "custom", {"name": "patch", "input": ""})
    assert second == {"index": 0, "custom": {"input": '+a\n"b"'}}
    assert (rest[0]["type"], rest[0]["function"]["name"]) == ("function", "weather")
    assert "".join(piece["function"]["arguments"] for piece in rest) == NASTY
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_truncated_call_of_a_custom_tool_has_what_the_model_wrote(gateway: Gateway) -> None:
    gateway.engine.respond_with(PATCH_CALL)
    choice = (await ask(gateway, tools=[PATCH], max_tokens=55)).choices[0]
    assert choice.finish_reason == "length"
    written = choice.message.tool_calls[0].custom.input
    assert written
    assert '{"input": "+a\\n\\"b\\""}'.startswith(written)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "custom", "custom": {"name": "patch"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "patch"}}]},
        },
    ],
)
async def test_a_custom_tool_can_be_required(gateway: Gateway, choice: Any) -> None:
    gateway.engine.respond_with(PATCH_CALL)
    answer = await ask(gateway, tools=[PATCH, *DEFINED], tool_choice=choice)
    assert answer.choices[0].message.tool_calls[0].custom.input == '+a\n"b"'
    assert answer.choices[0].finish_reason == ("stop" if choice["type"] == "custom" else "tool_calls")
    grammar = gateway.engine.submits[-1].grammar.lark
    assert "patch" in grammar
    assert "weather" not in grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [WORD]}, "tools.0.custom.format.grammar.definition"),
        ({"tools": [PATCH | {"function": {"name": "f"}}]}, "tools.0.function"),
        ({"tools": [{"type": "other"}]}, "tools.0.type"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools.0.type"),
        ({"tools": [PATCH, PATCH]}, "tools.1.custom.name"),
        ({"tools": [PATCH], "tool_choice": {"type": "custom", "custom": {"name": "other"}}}, "tool_choice"),
        ({"tools": [PATCH], "tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        (
            {"tools": [PATCH], "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom"}]}]},
            "messages.0.tool_calls.0.custom",
        ),
    ],
)
async def test_bad_custom_tools_are_named(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL_ID, "messages": [QUESTION]} | fields
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
