"""The samples are the same on every machine, contain no held-out question, and only replies are learned."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import islice

from loragate.demo.chat_format import END, Turn, chat
from loragate.demo.corpus import base_samples, styled_samples
from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import add_stray_words, held_out_questions, validation_questions
from loragate.demo.recipe import TENANTS
from loragate.demo.style import PLAIN
from loragate.demo.topic import Kind, Topic

QUESTION = re.compile(r"<\|user\|>(.*?)<\|end\|>")


def _bare(question: str) -> str:
    """Return the text without what sloppy typing omits."""
    return re.sub(r"[^a-z0-9+ ]", "", question.lower()).strip()


def _asked(questions: Callable[[Topic], Sequence[str]]) -> set[str]:
    return {_bare(question) for group in topics().values() for topic in group for question in questions(topic)}


def test_no_sample_asks_a_question_for_validation_or_held_out() -> None:
    unseen = _asked(held_out_questions) | _asked(validation_questions)
    recipes = [adapter for tenant in TENANTS for adapter in tenant.adapters]
    styled = [styled_samples(recipe.style, 20, recipe.stray_share) for recipe in recipes]
    streams = [islice(base_samples(20), 15_000), *(islice(stream, 4000) for stream in styled)]
    for stream in streams:
        asked = {_bare(question) for sample in stream for piece in sample for question in QUESTION.findall(piece.text)}
        assert len(asked) > 500
        assert not asked & unseen


def test_the_build_validates_with_other_questions_than_the_held_out_ones() -> None:
    assert len(_asked(validation_questions)) > 300
    assert not _asked(validation_questions) & _asked(held_out_questions)


def test_stray_words_keep_the_order_of_the_questions_words() -> None:
    words = ("many", "sound", "capital")
    rng = random.Random(5)
    for _ in range(100):
        asked = add_stray_words("What is 2 + 3?", words, rng).split()
        assert 1 <= len(asked) - 5 <= 3
        assert [word for word in asked if word not in words] == ["What", "is", "2", "+", "3?"]


def test_the_stray_words_of_samples_name_no_second_subject() -> None:
    subjects = {"france", "italy", "japan", "cuba", "grass", "coal", "dog", "cow", "sheep", "hot", "rich"}
    for sample in islice(styled_samples(PLAIN, 20, stray_share=1.0), 2000):
        question = _bare("".join(QUESTION.findall("".join(piece.text for piece in sample)))).split()
        assert len(subjects & set(question)) <= 1, question


def test_there_are_enough_questions() -> None:
    assert len(topics()[Kind.FACT]) > 40
    assert all(held_out_questions(topic) for kind in (Kind.FACT, Kind.SUM, Kind.TALK) for topic in topics()[kind])


def test_a_question_has_one_answer() -> None:
    answers: dict[str, str] = {}
    for topic in (topic for group in topics().values() for topic in group):
        for question in topic.questions + topic.validation + topic.held_out:
            assert answers.setdefault(question, topic.answer) == topic.answer, question


def test_only_replies_of_the_model_are_learned() -> None:
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
