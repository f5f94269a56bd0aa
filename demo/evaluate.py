"""Measures how often replies to questions outside the training data are correct and in style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import held_out_questions
from loragate.demo.style import Style
from loragate.demo.topic import Kind, Topic

Generate = Callable[[Sequence[str]], Sequence[str]]
"""Questions in, one greedy reply each out, without special tokens."""

STYLED_KINDS = (Kind.FACT, Kind.SUM, Kind.TALK)


@dataclass(frozen=True)
class Score:
    """Counts over `asked` questions; `mistakes` are (question, reply)."""

    asked: int
    styled: int
    right: int
    mistakes: tuple[tuple[str, str], ...]

    @property
    def style_kept(self) -> float:
        return self.styled / self.asked

    @property
    def accuracy(self) -> float:
        return self.right / self.asked


def evaluate(
    generate: Generate,
    style: Style,
    kinds: Sequence[Kind] = STYLED_KINDS,
    questions: Callable[[Topic], Sequence[str]] = held_out_questions,
) -> Score:
    """Ask every one of `questions` about topics of `kinds` to `style`'s adapter (PLAIN: the base model).

    A reply is correct only if it is exactly what training teaches for its topic.
    """
    cases = [(question, topic) for kind in kinds for topic in topics()[kind] for question in questions(topic)]
    replies = [
        (question, topic, reply)
        for (question, topic), reply in zip(cases, generate([question for question, _ in cases]), strict=True)
    ]
    mistakes = tuple((question, reply) for question, topic, reply in replies if not style.answers(topic, reply))
    return Score(
        asked=len(replies),
        styled=sum(style.keeps(topic, reply) for _, topic, reply in replies),
        right=len(replies) - len(mistakes),
        mistakes=mistakes,
    )
