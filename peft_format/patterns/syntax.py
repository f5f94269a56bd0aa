"""Regular expressions as syntax trees: the part of Python's `re` whose matching time can be bounded.

The parser reads literals, `.`, classes, `\\d \\w \\s \\b` and their opposites, groups, alternatives, `^ $ \\A \\Z`,
and the repeats `* + ? {m,n}` with their lazy forms (which accept the same strings). It rejects everything else, above
all look-around, back-references and flags: they make matching time unbounded, or change the meaning of the rest.
"""

import string
from dataclasses import dataclass
from enum import Enum

MAX_REPEAT = 1_000
_MAX_DEPTH = 32
_RESERVED_IN_CLASS = ("--", "&&", "||", "~~")


class PatternError(ValueError):
    """A fault of a pattern, as the end of a sentence."""


class Category(Enum):
    DIGIT = "d"
    SPACE = "s"
    WORD = "w"

    def holds(self, char: str) -> bool:
        match self:
            case Category.DIGIT:
                return char.isdecimal()
            case Category.SPACE:
                return char.isspace()
            case Category.WORD:
                return char.isalnum() or char == "_"


class Anchor(Enum):
    START = "^"
    END = "$"
    BOUNDARY = "b"
    NOT_BOUNDARY = "B"


@dataclass(frozen=True)
class Chars:
    """One character: in any of the ranges or categories, or, if `negated`, in none of them."""

    ranges: tuple[tuple[str, str], ...] = ()
    categories: tuple[tuple[Category, bool], ...] = ()
    negated: bool = False

    def holds(self, char: str) -> bool:
        found = any(low <= char <= high for low, high in self.ranges) or any(
            category.holds(char) is wanted for category, wanted in self.categories
        )
        return found is not self.negated


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Choice:
    options: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """`body`, repeated at least `low` and at most `high` times; `high` None is unbounded."""

    body: "Node"
    low: int
    high: int | None


Node = Chars | Anchor | Sequence | Choice | Repeat

ANY = Chars(ranges=(("\n", "\n"),), negated=True)


def literal(char: str) -> Chars:
    return Chars(ranges=((char, char),))


def parse(text: str) -> Node:
    """Return the syntax tree of `text`; raises PatternError."""
    parser = _Parser(text)
    node = parser.choice(depth=0)
    if not parser.done:
        raise PatternError("has an unmatched closing parenthesis")
    return node


class _Parser:
    """A recursive-descent parser of `text`, with one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._text)

    def choice(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise PatternError(f"nests groups more than {_MAX_DEPTH} deep")
        options = [self._sequence(depth)]
        while self._accept("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.done and self._peek() not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return Sequence(tuple(parts))

    def _repeated(self, atom: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        if isinstance(atom, Anchor):
            raise PatternError("repeats an anchor")
        self._accept("?")
        if not self.done and self._peek() in "*+?{":
            raise PatternError("has a repeat of a repeat, or a possessive one")
        return Repeat(atom, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        return self._counted() if self._accept("{") else None

    def _counted(self) -> tuple[int, int | None]:
        body, closed, _ = self._text[self._at :].partition("}")
        low, comma, high = body.partition(",")
        if not closed or body in ("", ",") or not all(map(_is_count, filter(None, (low, high)))):
            raise PatternError("has a { that does not start a repeat; write \\{ for the character")
        self._at += len(body) + 1
        lowest = int(low or 0)
        highest = (int(high) if high else None) if comma else lowest
        if max(lowest, highest or 0) > MAX_REPEAT or (highest is not None and highest < lowest):
            raise PatternError(f"has a repeat whose bounds are not in order, or above {MAX_REPEAT}")
        return lowest, highest

    def _atom(self, depth: int) -> Node:
        char = self._take()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return self._escape(self._take("ends in a backslash"))
            case ".":
                return ANY
            case "^":
                return Anchor.START
            case "$":
                return Anchor.END
            case "*" | "+" | "?" | "{":
                raise PatternError(f"has a {char} with nothing to repeat")
        return literal(char)

    def _group(self, depth: int) -> Node:
        if self._accept("?") and not self._accept(":"):
            self._group_name()
        node = self.choice(depth + 1)
        if not self._accept(")"):
            raise PatternError("has a group that is not closed")
        return node

    def _group_name(self) -> None:
        name, closed, _ = self._text[self._at :].partition(">")
        if not closed or not name.startswith("P<") or not name[2:].isidentifier():
            raise PatternError(
                "uses look-around, a flag, or another (?…) construct; only (?:…) and (?P<name>…) are read"
            )
        self._at += len(name) + 1

    def _escape(self, char: str) -> Node:
        match char:
            case "b":
                return Anchor.BOUNDARY
            case "B":
                return Anchor.NOT_BOUNDARY
            case "A":
                return Anchor.START
            case "Z":
                return Anchor.END
        category = _category(char)
        return Chars(categories=(category,)) if category else literal(_plain(char))

    def _class(self) -> Chars:
        negated = self._accept("^")
        ranges: list[tuple[str, str]] = []
        categories: list[tuple[Category, bool]] = []
        first = True
        while first or self._peek("has a class that is not closed") != "]":
            first = False
            self._reject_reserved()
            low = self._member()
            if not isinstance(low, str):
                categories.append(low)
            elif self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                ranges.append(self._range(low))
            else:
                ranges.append((low, low))
        self._at += 1
        return Chars(tuple(ranges), tuple(categories), negated)

    def _reject_reserved(self) -> None:
        here = self._text[self._at : self._at + 2]
        reserved = "[" if here.startswith("[") else here  # what follows a bracket may be unprintable
        if reserved == "[" or reserved in _RESERVED_IN_CLASS:
            raise PatternError(f"has {reserved} in a class, which Python reserves; write a backslash before it")

    def _range(self, low: str) -> tuple[str, str]:
        self._at += 1
        high = self._member()
        if not isinstance(high, str) or high < low:
            raise PatternError("has a class with a range that is not in order")
        return low, high

    def _member(self) -> str | tuple[Category, bool]:
        char = self._take("has a class that is not closed")
        if char != "\\":
            return char
        escaped = self._take("ends in a backslash")
        return _category(escaped) or _plain(escaped)

    def _peek(self, otherwise: str = "ends too early") -> str:
        if self.done:
            raise PatternError(otherwise)
        return self._text[self._at]

    def _take(self, otherwise: str = "ends too early") -> str:
        char = self._peek(otherwise)
        self._at += 1
        return char

    def _accept(self, char: str) -> bool:
        found = self._text.startswith(char, self._at)
        self._at += found
        return found


def _is_count(text: str) -> bool:
    return len(text) <= len(str(MAX_REPEAT)) and text.isascii() and text.isdigit()


def _category(char: str) -> tuple[Category, bool] | None:
    if char.lower() in "dsw":
        return Category(char.lower()), char.islower()
    return None


def _plain(char: str) -> str:
    if char in string.ascii_letters + string.digits:
        raise PatternError(f"uses \\{char}, a back-reference or an escape, which module names do not need")
    return char
