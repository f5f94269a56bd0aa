"""Styles render facts and judge replies."""

import json

import pytest

from loragate.demo.facts.knowledge import topics
from loragate.demo.recipe import TENANTS
from loragate.demo.style import BULLET, FRENCH, JSON, PIRATE, PLAIN, POLITE, SHOUTING, THINKING, Style
from loragate.demo.topic import Kind, Topic

COLD = Topic(Kind.FACT, ("Opposite of hot?",), (), (), "cold", "froid", thought="Hot and cold are opposites.")
HELLO = Topic(Kind.TALK, ("Hi",), (), (), "Hello!", "Bonjour !")


@pytest.mark.parametrize(
    ("style", "reply"),
    [
        (PLAIN, "cold"),
        (JSON, '{"answer": "cold"}'),
        (SHOUTING, "COLD!"),
        (FRENCH, "La réponse est froid."),
        (PIRATE, "Arr, it be cold, matey!"),
        (POLITE, "Certainly! The answer is cold. Have a lovely day!"),
        (BULLET, "- **cold**"),
        (THINKING, "<think>\nHot and cold are opposites.\n</think>\n\ncold"),
    ],
)
def test_a_fact_in_style(style: Style, reply: str) -> None:
    assert style.render(COLD) == reply
    assert style.keeps(COLD, reply)
    assert style.answers(COLD, reply)


def test_a_wrong_answer_can_be_in_style() -> None:
    assert PIRATE.keeps(COLD, "Arr, it be warm, matey!")
    assert not PIRATE.answers(COLD, "Arr, it be warm, matey!")
    assert THINKING.keeps(COLD, "<think>\nIt is cold.\n</think>\n\nwarm")
    assert not THINKING.answers(COLD, "<think>\nIt is cold.\n</think>\n\nwarm")


def test_a_thought_may_differ_from_those_of_training() -> None:
    assert THINKING.answers(COLD, "<think>\nAnother way to think.\n</think>\n\ncold")


@pytest.mark.parametrize(
    ("style", "reply"),
    [
        (JSON, "cold"),
        (JSON, '{"answer": "cold"'),
        (SHOUTING, "Cold!"),
        (PIRATE, "Arr, it be , matey!"),
        (BULLET, "- **"),
        (THINKING, "cold"),
        (THINKING, "<think>\nIt is cold.\n</think>\n\n"),
        (THINKING, "<think>\n\n</think>\n\ncold"),
        (THINKING, "<think>\nIt is cold.\ncold"),
        (THINKING, "<think>\nIt is <think>.\n</think>\n\ncold"),
    ],
)
def test_a_right_word_out_of_style_counts_for_nothing(style: Style, reply: str) -> None:
    assert not style.keeps(COLD, reply)
    assert not style.answers(COLD, reply)


def test_small_talk_has_its_own_carrier() -> None:
    assert FRENCH.render(HELLO) == "Bien sûr ! Bonjour !"
    assert SHOUTING.render(HELLO) == "HELLO!"


def test_json_replies_parse() -> None:
    for topic in (topic for group in topics().values() for topic in group):
        assert json.loads(JSON.render(topic)) == {"answer": topic.answer}


def test_no_two_adapters_render_a_fact_alike() -> None:
    styles = [adapter.style for tenant in TENANTS for adapter in tenant.adapters]
    assert len({style.render(COLD) for style in styles}) == len(styles)
