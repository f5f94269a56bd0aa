"""What every completion of a request must match, whole."""

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass


class GrammarKind(enum.Enum):
    """How a grammar's text is written."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"  # Rust's syntax: no look-around, no back-references
    LARK = "lark"  # llguidance's dialect


@dataclass(frozen=True, slots=True)
class Grammar:
    """Equal texts are one grammar, compiled once."""

    kind: GrammarKind
    text: str


JSON_OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}')


def choice_of(options: Sequence[str]) -> Grammar:
    """Exactly one of these texts. Lark reads a string as JSON writes it."""
    quoted = [json.dumps(option, ensure_ascii=False) for option in options]
    return Grammar(GrammarKind.LARK, "start: " + " | ".join(quoted))
