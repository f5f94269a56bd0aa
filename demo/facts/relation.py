"""A relation between subjects and answers: each pair is one topic."""

from __future__ import annotations

from dataclasses import dataclass

from loragate.demo.topic import Kind, Topic, capitalize_first


@dataclass(frozen=True)
class Relation:
    """Templates with `{x}` for the subject (and `{answer}` in `statement`), and the facts that they express.

    `facts` are (subject, answer, answer in French).
    """

    questions: tuple[str, ...]
    validation: tuple[str, ...]
    held_out: tuple[str, ...]
    statement: str
    facts: tuple[tuple[str, str, str], ...]

    def topics(self) -> tuple[Topic, ...]:
        return tuple(self._topic(*fact) for fact in self.facts)

    def _topic(self, subject: str, answer: str, french: str) -> Topic:
        statement = capitalize_first(self.statement.format(x=subject, answer=answer))
        return Topic(
            kind=Kind.FACT,
            questions=_fill(self.questions, subject),
            validation=_fill(self.validation, subject),
            held_out=_fill(self.held_out, subject),
            answer=answer,
            french=french,
            statement=statement,
            thought=f"Let me remember. {statement}",
        )


def _fill(templates: tuple[str, ...], subject: str) -> tuple[str, ...]:
    return tuple(capitalize_first(template.format(x=subject)) for template in templates)
