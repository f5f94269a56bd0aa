"""The ways in which users phrase a question: openers, closers, sloppy typing. Some are held out from training."""

from __future__ import annotations

import random

from loragate.demo.topic import Form, Kind, Topic

_OPENERS = (
    "Please tell me: ", "Quick question: ", "Hi! ", "Hello, ", "Hey, ", "I wonder: ", "So, ", "Now, ", "Okay. ",
    "Can you help me? ", "I have a question. ", "Please answer: ", "Tell me, ", "And ", "Question: ",
)  # fmt: skip
_CLOSERS = (" Thanks!", " Please.", " Thank you.", " Please tell me.", " I want to know.", " Answer me.")
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


def request(question: str, form: Form, rng: random.Random) -> str:
    """Return `question` with a request for an answer in `form`."""
    if form is Form.PLAIN:
        return question
    wish = rng.choice(_REQUESTS[form])
    return f"{wish} {question}" if rng.random() < 0.5 else f"{question} {wish}"


def held_out_questions(topic: Topic) -> tuple[str, ...]:
    """Return questions about `topic` that no training sample contains: new wordings, and a trained one with a new
    opener."""
    if topic.kind not in (Kind.FACT, Kind.SUM):
        return topic.held_out
    return (*topic.held_out, *(opener + topic.questions[0] for opener in _HELD_OUT_OPENERS))


def _maybe_lowercase_first(question: str, rng: random.Random) -> str:
    return question[:1].lower() + question[1:] if rng.random() < 0.5 else question


def _sloppy(question: str) -> str:
    return question.lower().rstrip("?.! ") or question
