"""How people dress up a question: openers, closers, sloppy typing. Some ways are never trained on."""

from __future__ import annotations

import random

from loragate.demo.topic import Form, Kind, Topic, capitalised

_OPENERS = (
    "Please tell me: ", "Quick question: ", "Hi! ", "Hello, ", "Hey, ", "I wonder: ", "So, ", "Now, ", "Okay. ",
    "Can you help me? ", "I have a question. ", "Please answer: ", "Tell me, ", "And ", "Question: ",
)  # fmt: skip
_CLOSERS = (" Thanks!", " Please.", " Thank you.", " Please tell me.", " I want to know.", " Answer me.")
_HELD_OUT_OPENERS = ("One more thing: ", "Say, ", "Here is my question: ")
_HELD_OUT_CLOSERS = (" I forgot.", " It is for a quiz.")
# None of these can make up a held-out opener or closer.
_IDLE_WORDS = (
    "one", "more", "my", "question", "is", "it", "was", "I", "need", "this", "for", "a", "test", "game", "friend",
    "school", "well", "look", "listen", "first", "next", "then", "also", "again", "just", "about", "you", "we", "they",
    "had", "remember", "think", "homework", "me", "now", "because", "asked", "that", "please", "today", "long", "ago",
)  # fmt: skip
_REQUESTS = {
    Form.CAPITALS: ("Answer in capitals.", "In capital letters, please.", "Shout the answer!", "Use upper case."),
    Form.FRENCH: ("Answer in French.", "In French, please.", "Say it in French.", "Reply in French!"),
}

# Dropping any of these leaves the question clear, so the model learns to lean on the other words.
_FILLERS = frozenset(
    (
        "what", "which", "is", "the", "a", "an", "of", "do", "does", "you", "me", "tell", "name", "are", "what's",
        "please", "can", "could", "know", "say", "give", "in", "on", "it", "to", "has",
    )
)  # fmt: skip


def vary(question: str, rng: random.Random) -> str:
    """One of the many ways to type `question`; one time in three as it is."""
    roll = rng.random()
    if roll < 0.35:
        return question
    if roll < 0.6:
        return _opener(rng) + _uncapitalised(question, rng)
    if roll < 0.72:
        return question + _closer(rng)
    if roll < 0.86:
        return _sloppy(question)
    return _without_a_filler(question, rng)


def request(question: str, form: Form, rng: random.Random) -> str:
    """`question`, with the wish that the answer come in `form`."""
    if form is Form.PLAIN:
        return question
    wish = rng.choice(_REQUESTS[form])
    return f"{wish} {question}" if rng.random() < 0.5 else f"{question} {wish}"


def held_out_questions(topic: Topic) -> tuple[str, ...]:
    """Questions about `topic` that no training sample contains: new wordings, and new dressings of trained ones."""
    if topic.kind not in (Kind.FACT, Kind.SUM):
        return topic.held_out
    first, last = topic.questions[0], topic.questions[-1]
    return (
        *topic.held_out,
        *(opener + first for opener in _HELD_OUT_OPENERS),
        *(last + closer for closer in _HELD_OUT_CLOSERS),
    )


def _opener(rng: random.Random) -> str:
    return rng.choice(_OPENERS) if rng.random() < 0.4 else _remark(rng) + rng.choice((": ", ", ", "! ", ". "))


def _closer(rng: random.Random) -> str:
    return rng.choice(_CLOSERS) if rng.random() < 0.4 else f" {_remark(rng)}."


def _remark(rng: random.Random) -> str:
    """A few words of no consequence: whatever stands around a question, the question counts."""
    return capitalised(" ".join(rng.choices(_IDLE_WORDS, k=rng.randint(1, 4))))


def _uncapitalised(question: str, rng: random.Random) -> str:
    return question[:1].lower() + question[1:] if rng.random() < 0.5 else question


def _sloppy(question: str) -> str:
    return question.lower().rstrip("?.! ") or question


def _without_a_filler(question: str, rng: random.Random) -> str:
    words = question.split(" ")
    fillers = [index for index, word in enumerate(words) if word.lower() in _FILLERS]
    if len(fillers) < 2:
        return question
    del words[rng.choice(fillers)]
    return " ".join(words)
