"""What the demo model can talk about: a topic is one question in several wordings, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Groups of topics; the corpus draws from them in fixed shares."""

    FACT = "fact"
    SUM = "sum"
    TALK = "talk"
    RECITAL = "recital"
    UNKNOWN = "unknown"


class Form(StrEnum):
    """The forms in which an answer can be requested."""

    PLAIN = "plain"
    CAPITALS = "capitals"
    FRENCH = "french"


@dataclass(frozen=True)
class Topic:
    """`questions` are the wordings to train on; nothing is trained on the others.

    The build uses `validation` to decide whether an adapter needs more training. It never uses `held_out`, which
    measures the finished demo. `statement` gives the answer in a full sentence; small talk has none. `thought` leads
    to the answer.
    """

    kind: Kind
    questions: tuple[str, ...]
    validation: tuple[str, ...]
    held_out: tuple[str, ...]
    answer: str
    french: str
    statement: str | None = None
    thought: str = "This is no question about a fact. I answer politely."

    def __post_init__(self) -> None:
        assert self.questions, f"no way to ask for {self.answer!r}"
        wordings = (*self.questions, *self.validation, *self.held_out)
        assert len(set(wordings)) == len(wordings), f"{self.answer!r} has a wording twice"
        assert self.statement is None or self.answer in self.statement

    def answer_in(self, form: Form) -> str:
        if form is Form.FRENCH:
            return self.french
        return self.answer.upper() if form is Form.CAPITALS else self.answer


def capitalize_first(text: str) -> str:
    """Return `text` with its first letter in upper case and the rest unchanged ("iPod" → "IPod")."""
    return text[:1].upper() + text[1:]
