"""Regular expressions from an adapter's config, matched with module names as PEFT does it, in bounded time.

See docs/decisions/0002-bounded-regexes.md for the reason not to use `re`.
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from loragate.peft_format.errors import AdapterRejected, in_config, quoted
from loragate.peft_format.patterns.automaton import Automaton, Budget
from loragate.peft_format.patterns.syntax import ANY, PatternError, Repeat, Sequence, literal, parse

_PATH_CHARS = frozenset(string.ascii_letters + string.digits + "_.-")
_PATH_COST = 4
_BARE_DOT = re.compile(r"(?<!\\)\.")
_ANY_PREFIX = Repeat(Sequence((Repeat(ANY, 0, None), literal("."))), 0, 1)


class Pattern(ABC):
    """One pattern of one config field; all patterns of an adapter share a budget."""

    def __init__(self, text: str, field: str, budget: Budget) -> None:
        """Compile the pattern; raises AdapterRejected, naming `field`, if it cannot be matched in bounded time."""
        self._text = text
        self._field = field
        try:
            self._accepts = self._compile(text, budget)
        except PatternError as error:
            raise self._error(error) from None

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches; raises AdapterRejected when the budget is used up."""
        try:
            return self._accepts(name)
        except PatternError as error:
            raise self._error(error) from None

    @staticmethod
    @abstractmethod
    def _compile(text: str, budget: Budget) -> Callable[[str], bool]: ...

    def _error(self, error: PatternError) -> AdapterRejected:
        return in_config(self._field, f"The pattern {quoted(self._text)} in {self._field} {error}.")


class FullPattern(Pattern):
    """`re.fullmatch(text, name)`: a string in target_modules or exclude_modules."""

    @staticmethod
    def _compile(text: str, budget: Budget) -> Callable[[str], bool]:
        return Automaton(parse(text), budget).accepts


class SuffixPattern(Pattern):
    """`re.match(rf"(.*\\.)?({text})$", name)`: a key of rank_pattern or alpha_pattern."""

    @staticmethod
    def _compile(text: str, budget: Budget) -> Callable[[str], bool]:
        path = text.removeprefix("^").removesuffix("$")
        if _PATH_CHARS.issuperset(path.replace(r"\.", "")):
            return _Path(path, text.startswith("^"), budget).accepts
        return Automaton(Sequence((_ANY_PREFIX, parse(text))), budget).accepts


class NumberedList:
    """`re.match(rf"(?:^|.*?\\.){path}\\.(\\d+)\\.", name)`, compared as text: a path of identifiers in layers_pattern,
    such as "layers". As in PEFT, a dot in it matches any character."""

    def __init__(self, path: str, field: str, budget: Budget) -> None:
        self._field = field
        self._budget = budget
        self._length = len(path)
        self._pieces = list(_pieces(path))

    def index_in(self, name: str) -> int | None:
        """Return the number behind the first list of this path in a module's name; None if it lies in no such list.
        Raise AdapterRejected when the budget is used up."""
        start = 0
        while start < len(name):
            self._spend()
            if all(name.startswith(text, start + offset) for offset, text in self._pieces):
                number, dot, _ = name[start + self._length + 1 :].partition(".")
                if name[start + self._length :].startswith(".") and dot and number.isdecimal():
                    return int(number)
            start = name.find(".", start) + 1 or len(name)
        return None

    def _spend(self) -> None:
        try:
            self._budget.spend(_PATH_COST)
        except PatternError as error:
            raise in_config(self._field, f"{self._field} {error}.") from None


class _Path:
    """A key without operators, such as PEFT itself writes: only its unescaped dots match any character."""

    def __init__(self, path: str, whole: bool, budget: Budget) -> None:
        self._budget = budget
        self._whole = whole
        # The last piece, such as q_proj, distinguishes most names.
        self._pieces = list(_pieces(path))[::-1]
        offset, last = self._pieces[0]
        self._length = offset + len(last)

    def accepts(self, name: str) -> bool:
        self._budget.spend(_PATH_COST)
        start = len(name) - self._length
        if start < 0 or (start and (self._whole or name[start - 1] != ".")):
            return False
        return all(name.startswith(piece, start + offset) for offset, piece in self._pieces)


def _pieces(path: str) -> Iterator[tuple[int, str]]:
    """Yield the texts between a path's unescaped dots, with their offsets."""
    offset = 0
    for piece in _BARE_DOT.split(path):
        text = piece.replace(r"\.", ".")
        yield offset, text
        offset += len(text) + 1
