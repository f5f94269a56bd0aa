"""Any text round-trips through tokens; transformers and tokenizers agree on them."""

import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from loragate.demo.chat_format import END, SPECIAL_TOKENS, Turn, chat
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


def test_the_template_rejects_an_unknown_role(saved: Path) -> None:
    auto = AutoTokenizer.from_pretrained(saved)
    with pytest.raises(Exception, match="role"):
        auto.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)


def test_training_is_deterministic(saved: Path) -> None:
    again = train_tokenizer(TEXTS, 600)
    assert json.loads(again.to_str()) == json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
