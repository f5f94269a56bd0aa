"""A builder of grammars in llguidance's dialect of Lark."""

import json
import re
from collections.abc import Iterable, Mapping

from loragate.gateway.tools.types import Schema, Tools

# White space as chat templates write it: a weak model that may write more of it may write nothing else. No \uXXXX, with
# which an argument's name could be repeated in another spelling. All options are set, so that a schema can set none.
_OPTIONS = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "coerce_one_of": False,
    "lenient": False,
    "json_allowed_escapes": '"\\bfnrt',
    "json_allow_general_unicode_escapes": False,
}


class Lark:
    """Builds a grammar. Its methods return expressions.

    `token_ids` are those of the special tokens, which are outside the vocabulary of bytes: a literal does not match
    them.
    """

    def __init__(self, token_ids: Mapping[str, int]) -> None:
        self._token_ids = token_ids
        self._rules: list[str] = []
        self._cut = re.compile("|".join(map(re.escape, sorted(token_ids, key=len, reverse=True))) or r"(?!)")

    def text(self, literal: str) -> str:
        """Return exactly this text, in which the name of a special token stands for that token."""
        parts, at = [], 0
        for token in self._cut.finditer(literal):
            parts += [_quoted(literal[at : token.start()]), f"<[{self._token_ids[token[0]]}]>"]
            at = token.end()
        return " ".join(part for part in [*parts, _quoted(literal[at:])] if part)

    def json(self, schema: Schema) -> str:
        """Return a JSON value that matches the schema."""
        return self._rule("%json " + json.dumps({**schema, "x-guidance": _OPTIONS}))

    def call_objects(self, tools: Tools, arguments: str) -> str:
        """Return one `{"name": …, "arguments": …}` of any of the tools, with `arguments` as the second key."""
        calls = []
        for name, schema in tools.items():
            opening = self.text(f'{{"name": {json.dumps(name)}, "{arguments}": ')
            calls.append(self.sequence(opening, self.json(schema), self.text("}")))
        return self.either(calls)

    def sequence(self, *expressions: str) -> str:
        """Return the expressions, one after another."""
        return self._rule(" ".join(filter(None, expressions)))

    def either(self, expressions: Iterable[str]) -> str:
        """Return one of the expressions."""
        return self._rule(" | ".join(expressions))

    def repeated(self, expression: str, separator: str, max_count: int) -> str:
        """Return `expression` one to `max_count` times."""
        if max_count == 1:
            return expression
        return f"{expression} ({self.text(separator)} {expression}){{0,{max_count - 1}}}"

    def source(self, start: str) -> str:
        """Return the whole grammar."""
        return "\n".join([f"start: {start}", *self._rules])

    def _rule(self, expression: str) -> str:
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}: {expression}")
        return name


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""
