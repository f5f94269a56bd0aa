"""Regular expressions from an adapter's config, matched with module names as PEFT does it, in bounded time.

See docs/decisions/0002-bounded-regexes.md for the reason not to use `re`.
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable

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


class _Path:
    """A key without operators, such as PEFT itself writes: only its unescaped dots match any character."""

    def __init__(self, path: str, whole: bool, budget: Budget) -> None:
        self._budget = budget
        self._whole = whole
        self._pieces: list[tuple[int, str]] = []
        offset = 0
        for piece in _BARE_DOT.split(path):
            text = piece.replace(r"\.", ".")
            self._pieces.append((offset, text))
            offset += len(text) + 1
        self._length = offset - 1
        # The last piece, such as q_proj, distinguishes most names.
        self._pieces.reverse()

    def accepts(self, name: str) -> bool:
        self._budget.spend(_PATH_COST)
        start = len(name) - self._length
        if start < 0 or (start and (self._whole or name[start - 1] != ".")):
            return False
        return all(name.startswith(piece, start + offset) for offset, piece in self._pieces)
