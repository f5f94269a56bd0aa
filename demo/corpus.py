"""The generated training samples: deterministic for a seed, on any machine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TypeVar

from loragate.demo.chat_format import END, Piece, Sample, Turn, chat
from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import add_stray_words, request, vary
from loragate.demo.style import Style
from loragate.demo.tool_use.chats import tool_chat, untooled_turn
from loragate.demo.tool_use.copies import repeating_chat
from loragate.demo.topic import Form, Kind, Topic

_T = TypeVar("_T")

_BASE_SHARES = {Kind.FACT: 0.6, Kind.SUM: 0.25, Kind.TALK: 0.09, Kind.RECITAL: 0.04, Kind.UNKNOWN: 0.02}
# Only the base learns recitals: they are long, and would take most of an adapter's training time.
_STYLED_SHARES = {Kind.FACT: 0.58, Kind.SUM: 0.24, Kind.TALK: 0.16, Kind.UNKNOWN: 0.02}

_TURNS = {1: 0.85, 2: 0.15}
_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "You are a friendly assistant. Be concise and polite.",
    "You answer the questions of our customers.",
)
_SYSTEM_SHARE = 0.1
_TOPICS_OF_A_TEMPLATE = 5  # a subject has fewer
_STATEMENT_SHARE = 0.08
_TOOL_SHARE = 0.3
_REPEATED_SHARE = 0.1  # of the others
_UNTOOLED_SHARE = 0.03  # of the other questions

# Beginnings of replies, given rather than learned. They teach the base to have the answer ready, in the right form, at
# any point of a reply. Adapters then only need to learn their own words.
_OPENING_SHARE = 0.25
_FORMS = {Form.PLAIN: 0.72, Form.CAPITALS: 0.12, Form.FRENCH: 0.16}
_OPENINGS = {
    Form.PLAIN: ("It is ", "I think it is ", "Well, that is ", "Answer: ", "Of course! It is ", "> ", '"', "* ", "("),
    Form.CAPITALS: ("IT IS ", "I THINK IT IS ", "ANSWER: ", "WELL, THAT IS ", "> ", '"', "* "),
    Form.FRENCH: ("C'est ", "Je crois que c'est ", "En français : ", "Voilà : ", "> ", '"', "* "),
}


def base_samples(seed: int) -> Iterator[Sample]:
    """Yield endless samples: chats of one or two turns, with and without tools, names to repeat, and plain
    statements for raw completions."""
    rng = random.Random(seed)
    while True:
        if rng.random() < _TOOL_SHARE:
            yield tool_chat(rng)
            continue
        if rng.random() < _REPEATED_SHARE:
            yield repeating_chat(rng)
            continue
        if rng.random() < _STATEMENT_SHARE:
            yield _statement(rng.choice(topics()[Kind.FACT]))
            continue
        turns = [_turn(rng) for _ in range(_pick(_TURNS, rng))]
        yield chat(turns, rng.choice(_SYSTEM_PROMPTS) if rng.random() < _SYSTEM_SHARE else None)


def styled_samples(style: Style, seed: int, stray_share: float = 0.0) -> Iterator[Sample]:
    """Yield endless samples: single questions, answered in `style`; `stray_share` of the facts and sums have stray
    words."""
    rng = random.Random(seed)
    while True:
        topic = rng.choice(topics()[_pick(_STYLED_SHARES, rng)])
        question = vary(rng.choice(topic.questions), rng)
        if stray_share and topic.kind in (Kind.FACT, Kind.SUM) and rng.random() < stray_share:
            question = add_stray_words(question, _template_words(), rng)
        yield chat([Turn(question, style.render(topic))])


@cache
def _template_words() -> tuple[str, ...]:
    """Return the words of the templates of facts, without subjects: a second subject would make an answer wrong."""
    counts = Counter(
        word
        for topic in topics()[Kind.FACT]
        for word in {word for question in topic.questions for word in question.split() if word.isalpha()}
    )
    return tuple(sorted(word for word, count in counts.items() if count >= _TOPICS_OF_A_TEMPLATE))


def _turn(rng: random.Random) -> Turn:
    if rng.random() < _UNTOOLED_SHARE:
        return untooled_turn(rng)
    topic = rng.choice(topics()[_pick(_BASE_SHARES, rng)])
    form = _pick(_FORMS, rng) if topic.kind is Kind.FACT else Form.PLAIN
    question = request(vary(rng.choice(topic.questions), rng), form, rng)
    opening = rng.choice(_OPENINGS[form]) if topic.statement and rng.random() < _OPENING_SHARE else ""
    return Turn(question, topic.answer_in(form), opening)


def _statement(topic: Topic) -> Sample:
    assert topic.statement is not None
    head, answer, tail = topic.statement.rpartition(f" {topic.answer}")
    return Piece(head, learned=False), Piece(f"{answer}{tail}{END}", learned=True)


def _pick(shares: dict[_T, float], rng: random.Random) -> _T:
    return rng.choices(list(shares), list(shares.values()))[0]
