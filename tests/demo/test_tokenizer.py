"""Any text round-trips through tokens; transformers and tokenizers agree on them."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from loragate.demo.chat_format import END, SPECIAL_TOKENS, VISIBLE_TOKENS, Call, Tool, Turn, chat
from loragate.demo.corpus import base_samples
from loragate.demo.tokenizer import encode, save_tokenizer, train_tokenizer

TEXTS = [piece.text for sample in islice(base_samples(1), 300) for piece in sample]
TOKENIZER = train_tokenizer(TEXTS, 600)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_tokenizer(TOKENIZER, tmp_path, 2048)
    return tmp_path


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_are_single_and_first() -> None:
    assert [TOKENIZER.encode(token).ids for token in SPECIAL_TOKENS] == [
        [index] for index in range(len(SPECIAL_TOKENS))
    ]


def test_transformers_and_tokenizers_read_the_same(saved: Path) -> None:
    auto, bare = AutoTokenizer.from_pretrained(saved), Tokenizer.from_file(str(saved / "tokenizer.json"))
    text = "What is 3 + 4? Ça va : « naïve » 🦜\n\n  two  spaces"
    assert auto(text)["input_ids"] == bare.encode(text).ids
    assert auto.decode(auto(text)["input_ids"]) == text
    assert auto.eos_token_id == bare.token_to_id(END)
    assert auto.model_max_length == 2048


def test_the_template_writes_what_training_reads(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    ids, _ = encode(TOKENIZER, chat([Turn("Hi!", "Hello!"), Turn("Bye!", "See you.")], system="Be brief."))
    messages = [
        ("system", "Be brief."),
        ("user", "Hi!"),
        ("assistant", "Hello!"),
        ("user", "Bye!"),
        ("assistant", "See you."),
    ]
    conversation = [{"role": role, "content": content} for role, content in messages]
    assert auto.apply_chat_template(conversation, return_dict=False) == ids
    prompt = auto.apply_chat_template(conversation[:-1], add_generation_prompt=True, return_dict=False)
    assert prompt == ids[: len(prompt)]
    assert TOKENIZER.decode(ids[len(prompt) :]) == "See you."


def test_the_template_writes_tools_and_calls_as_training_reads_them(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    call = Call("get_weather", {"city": "Köln"}, "sunny")
    tools = [Tool("get_weather", ("city",), "Get the weather."), Tool("open_door", ())]
    sample = chat([Turn("Weather in Köln?", "It is sunny.", call=call)], tools=tools)
    conversation = [
        {"role": "user", "content": "Weather in Köln?"},
        {"role": "assistant", "content": None, "tool_calls": [_called("get_weather", {"city": "Köln"})]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    offered = [
        _offered("get_weather", ["city", "unit"], required=["city"], description="Get the weather.\n\nArgs: city"),
        _offered("open_door", [], required=[]),
    ]
    rendered = auto.apply_chat_template(conversation, tools=offered, tokenize=False)
    assert rendered == "".join(piece.text for piece in sample)
    assert auto.apply_chat_template(conversation, tools=offered, return_dict=False) == encode(TOKENIZER, sample)[0]


def test_the_template_shows_optional_parameters_of_a_tool_that_requires_none(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    tools = [_offered("search", ["query", "page"])]
    rendered = auto.apply_chat_template([{"role": "user", "content": "Hi"}], tools=tools, tokenize=False)
    assert rendered == "<|tools|>search(query, page)\n<|end|><|user|>Hi<|end|>"


def test_the_template_drops_earlier_thoughts_and_separates_calls(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    calls = [_called("calculator", {"expression": f"{number} * 9"}) for number in (1, 2)]
    conversation = [
        {"role": "assistant", "content": "<think>\nA thought.\n</think>\n\nParis"},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]
    assert auto.apply_chat_template(conversation, tokenize=False) == (
        "<|assistant|>Paris<|end|><|assistant|>"
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1 * 9"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 * 9"}}\n</tool_call><|end|>'
    )


def test_the_template_rejects_an_unknown_role(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    with pytest.raises(Exception, match="role"):
        auto.apply_chat_template([{"role": "function", "content": "x"}], tokenize=False)


def test_a_name_has_the_same_tokens_everywhere() -> None:
    ids = TOKENIZER.encode("Zürich").ids
    for text in ("Weather in Zürich today?", '{"city": "Zürich"}', "Zürich weather"):
        found = TOKENIZER.encode(text).ids
        assert any(found[start : start + len(ids)] == ids for start in range(len(found))), text


def test_markup_that_is_part_of_a_reply_survives_decoding() -> None:
    text = "<think>\nA thought.\n</think>\n\n<tool_call>\n{}\n</tool_call>"
    ids = TOKENIZER.encode(text + END).ids
    assert TOKENIZER.decode(ids) == text
    assert {TOKENIZER.token_to_id(token) for token in VISIBLE_TOKENS} <= set(ids)


def _called(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _offered(name: str, parameters: list[str], **more: Any) -> dict[str, Any]:
    required = {"required": more.pop("required")} if "required" in more else {}
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in parameters}, **required}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


def test_training_is_deterministic(saved: Path) -> None:
    again = train_tokenizer(TEXTS, 600)
    assert json.loads(again.to_str()) == json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
