"""Conversations of thousands of messages, each of them an answer's end: rendering them grows with the square."""

import json
from io import BytesIO
from typing import Any

import pytest
from tiny_tokenizers import byte_level

from loragate.finetune.data import loss_mask
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.token_cache import FileTokenizer
from loragate.finetune.data.tokenization_config import tokenization_config
from loragate.prompts.chat_template import ChatTemplate
from loragate.v1 import engine_pb2 as pb

TEMPLATE = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}{{ 'assistant' if add_generation_prompt }}"
TURNS = [{"role": role, "content": "x"} for _ in range(100) for role in ("user", "assistant")]
RENDERED = 2 * sum(range(1, 200, 2)) + 100  # messages: up to each answer, without it and with it, and the whole


class Nowhere:
    sequences = tokens = 0

    def add(self, sample: Sample) -> None:
        self.sequences += 1


def problems(*documents: dict[str, Any]) -> list[str]:
    tokenizer = byte_level()
    manifest = pb.Manifest(
        tokenizer_json=tokenizer.to_str().encode(), chat_template=TEMPLATE, eos_token_ids=[0], max_model_len=64
    )
    reader = FileTokenizer(Nowhere(), tokenization_config(manifest), 64)
    for _ in reader.take(BytesIO("\n".join(map(json.dumps, documents)).encode())):
        pass
    return [str(problem) for problem in reader.report.problems]


def test_a_file_may_cause_a_bounded_amount_of_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = 0
    really = ChatTemplate.render

    def render(self: ChatTemplate, messages: Any, *arguments: Any, **options: Any) -> str:
        nonlocal rendered
        rendered += len(messages)
        return really(self, messages, *arguments, **options)

    monkeypatch.setattr(ChatTemplate, "render", render)
    monkeypatch.setattr(loss_mask, "_FILE_RENDERING", 2 * RENDERED)
    assert problems(*[{"messages": TURNS}] * 2) == []
    assert rendered <= 2 * RENDERED
    rendered = 0
    found = problems(*[{"messages": TURNS}] * 60)
    assert len(found) == 20
    assert "too many answers to render" in found[0]
    size = len(json.dumps({"messages": TURNS}))
    assert rendered < 40 * (RENDERED + size), "it ends where there is no more to spend"


def test_ordinary_conversations_spend_less_than_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_mask, "_FILE_RENDERING", 0)
    turns = [{"role": each["role"], "content": "some words " * 20} for each in TURNS[:40]]
    assert problems(*[{"messages": turns}] * 20) == []
