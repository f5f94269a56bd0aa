"""The samples: the same everywhere, nothing held out among them, only replies learned."""

import os
import re
import subprocess
import sys
from itertools import islice

from loragate.demo.chat_format import END, Turn, chat
from loragate.demo.corpus import base_samples, styled_samples
from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import held_out_questions
from loragate.demo.recipe import TENANTS
from loragate.demo.topic import Kind

QUESTION = re.compile(r"<\|user\|>(.*?)<\|end\|>")


def _bare(question: str) -> str:
    """Without what sloppy typing leaves out."""
    return re.sub(r"[^a-z0-9+ ]", "", question.lower()).strip()


def test_no_sample_asks_a_held_out_question() -> None:
    held_out = {
        _bare(question) for group in topics().values() for topic in group for question in held_out_questions(topic)
    }
    styles = [adapter.style for tenant in TENANTS for adapter in tenant.adapters]
    streams = [islice(base_samples(20), 15_000), *(islice(styled_samples(style, 20), 4000) for style in styles)]
    for stream in streams:
        asked = {_bare(question) for sample in stream for piece in sample for question in QUESTION.findall(piece.text)}
        assert len(asked) > 500
        assert not asked & held_out


def test_there_is_plenty_to_ask() -> None:
    assert len(topics()[Kind.FACT]) > 40
    assert all(held_out_questions(topic) for kind in (Kind.FACT, Kind.SUM, Kind.TALK) for topic in topics()[kind])


def test_a_question_has_one_answer() -> None:
    answers: dict[str, str] = {}
    for topic in (topic for group in topics().values() for topic in group):
        for question in topic.questions + topic.held_out:
            assert answers.setdefault(question, topic.answer) == topic.answer, question


def test_only_what_the_model_says_is_learned() -> None:
    sample = chat([Turn("What?", "Paris", opening="It is ")], system="Be brief.")
    assert [piece.text for piece in sample if piece.learned] == [" Paris" + END]
    assert "".join(piece.text for piece in sample) == (
        "<|system|>Be brief.<|end|><|user|>What?<|end|><|assistant|>It is Paris<|end|>"
    )


def test_the_digest_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", "from loragate.demo.recipe import Recipe; print(Recipe().digest)"]
    digests = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
