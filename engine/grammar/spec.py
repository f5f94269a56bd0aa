"""Grammars: the format that every completion of a request must match as a whole."""

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass


class GrammarKind(enum.Enum):
    """The language of a grammar's text."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"  # rust's syntax: no look-around, no back-references
    LARK = "lark"  # llguidance's dialect


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar. Equal texts are one grammar, compiled once."""

    kind: GrammarKind
    text: str


JSON_OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}')


def choice_grammar(options: Sequence[str]) -> Grammar:
    """Return a grammar that matches exactly one of these texts. Lark reads a string as JSON writes it."""
    quoted = [json.dumps(option, ensure_ascii=False) for option in options]
    return Grammar(GrammarKind.LARK, "start: " + " | ".join(quoted))
