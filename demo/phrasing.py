"""The ways in which users phrase a question: openers, closers, sloppy typing. Training uses only some of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from loragate.demo.topic import Form, Kind, Topic

_OPENERS = (
    "Please tell me: ", "Quick question: ", "Hi! ", "Hello, ", "Hey, ", "I wonder: ", "So, ", "Now, ", "Okay. ",
    "Can you help me? ", "I have a question. ", "Please answer: ", "Tell me, ", "And ", "Question: ",
)  # fmt: skip
_CLOSERS = (" Thanks!", " Please.", " Thank you.", " Please tell me.", " I want to know.", " Answer me.")
_VALIDATION_OPENERS = ("Well, ", "My question is: ")
_HELD_OUT_OPENERS = ("Say, ", "Here is my question: ")
_REQUESTS = {
    Form.CAPITALS: ("Answer in capitals.", "In capital letters, please.", "Shout the answer!", "Use upper case."),
    Form.FRENCH: ("Answer in French.", "In French, please.", "Say it in French.", "Reply in French!"),
}


def vary(question: str, rng: random.Random) -> str:
    """Return one of many ways to type `question`; half of the time it is unchanged."""
    roll = rng.random()
    if roll < 0.5:
        return question
    if roll < 0.75:
        return rng.choice(_OPENERS) + _maybe_lowercase_first(question, rng)
    if roll < 0.85:
        return question + rng.choice(_CLOSERS)
    return _sloppy(question)


def add_stray_words(question: str, words: Sequence[str], rng: random.Random) -> str:
    """Return `question` with one to three of `words` in it: half of them lead, the others are at any place but last."""
    parts = question.split()
    for _ in range(rng.randint(1, 3)):
        parts.insert(rng.randrange(len(parts)) if rng.random() < 0.5 else 0, rng.choice(words))
    return " ".join(parts)


def request(question: str, form: Form, rng: random.Random) -> str:
    """Return `question` with a request for an answer in `form`."""
    if form is Form.PLAIN:
        return question
    wish = rng.choice(_REQUESTS[form])
    return f"{wish} {question}" if rng.random() < 0.5 else f"{question} {wish}"


def held_out_questions(topic: Topic) -> tuple[str, ...]:
    """Return questions about `topic` that no training sample contains: new wordings, and a trained one with a new
    opener."""
    return topic.held_out + _opened(topic, _HELD_OUT_OPENERS)


def validation_questions(topic: Topic) -> tuple[str, ...]:
    """Return questions like `held_out_questions`, but others: neither training nor that function contains them."""
    return topic.validation + _opened(topic, _VALIDATION_OPENERS)


def _opened(topic: Topic, openers: tuple[str, ...]) -> tuple[str, ...]:
    if topic.kind not in (Kind.FACT, Kind.SUM):
        return ()
    return tuple(opener + topic.questions[0] for opener in openers)


def _maybe_lowercase_first(question: str, rng: random.Random) -> str:
    return question[:1].lower() + question[1:] if rng.random() < 0.5 else question


def _sloppy(question: str) -> str:
    return question.lower().rstrip("?.! ") or question
