"""Special tokens that are spelled in a client's text, where they are text.

A tokenizer finds `<|im_end|>` wherever it is written. What a chat template writes means the token; the same characters
in a message, a tool or a tool's result do not. A mark is put inside these before the template is rendered, so that the
tokenizer does not find them, and the tokenizer removes all marks before it splits the text into tokens. Text that
spells no special token is left alone and gives the same tokens as without this module.
"""

import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loragate.prompts.template_messages import CallArguments

MARK = f"~{secrets.randbelow(10**12):012}~"
"""Printable ASCII, which templates, JSON and normalizers leave alone. It is new in each process, so no text has it."""


_WINDOW = 1 << 14  # characters searched at a time: a search holds the interpreter


class SpecialText:
    """Marks what spells one of `tokens`.

    `normalize` is the tokenizer's normalizer, if it also finds special tokens in normalized text.
    """

    def __init__(self, tokens: Iterable[str] = (), normalize: Callable[[str], str] | None = None) -> None:
        spelled = {token for token in tokens if len(token) > 1}
        self._pattern = _any_of(spelled)
        self._normalize = normalize
        self._normalized = _any_of({normalize(token) for token in spelled}) if normalize else None
        self._beginnings = frozenset(token[:size] for token in spelled for size in range(1, len(token)))
        self._first = frozenset(token[0] for token in spelled)
        self._longest = max(map(len, spelled), default=1) - 1

    def marked_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message for a template with marks in all that its client wrote."""
        return {field: value if field == "role" else self.marked(value) for field, value in message.items()}

    def marked(self, value: Any) -> Any:
        """Return the value, a text or JSON of any depth, with marks in its texts and keys."""
        if isinstance(value, str):
            return self._marked_text(value)
        if isinstance(value, CallArguments):
            return CallArguments(self._marked_text(value.text), self._marked_fields(value))
        if isinstance(value, dict):
            return self._marked_fields(value)
        if isinstance(value, list | tuple):
            return [self.marked(item) for item in value]
        return value

    @staticmethod
    def unmarked_position(marked: str) -> Callable[[int], int]:
        """Return a function from the positions in a marked text to those in the text itself."""
        marks = [found.start() for found in re.finditer(re.escape(MARK), marked)]
        return lambda position: position - len(MARK) * bisect_left(marks, position)

    def _marked_fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {self._marked_text(key): self.marked(value) for key, value in fields.items()}

    def _marked_text(self, text: str) -> str:
        if self._pattern is None:
            return text
        position = _find(self._pattern, text)
        if position is not None:
            text = self._broken_up(text, position)
        if self._normalize and self._normalized and _find(self._normalized, self._normalize(text)) is not None:
            text = MARK.join(text)
        return text + MARK if self._ends_open(text) else text

    def _broken_up(self, text: str, found: int) -> str:
        """Return the text with a mark behind the first character of each token, of which `found` is the first."""
        assert self._pattern is not None
        pieces, start = list[str](), 0
        position: int | None = found
        while position is not None:
            pieces.append(text[start : position + 1])
            start = position + 1  # tokens may overlap
            position = _find(self._pattern, text, start)
        return MARK.join([*pieces, text[start:]])

    def _ends_open(self, text: str) -> bool:
        """Return whether what the template writes next could complete a token."""
        tail = text[-self._longest :]
        if self._first.isdisjoint(tail):
            return False
        return any(tail[start:] in self._beginnings for start, first in enumerate(tail) if first in self._first)


def _any_of(texts: set[str]) -> re.Pattern[str] | None:
    return re.compile(_alternatives(texts)) if texts else None


def _alternatives(texts: set[str]) -> str:
    """Return a pattern of the texts as a tree: one alternative for each next character, so that few are tried."""
    rest: dict[str, set[str]] = {}
    for text in texts:
        rest.setdefault(text[:1], set()).add(text[1:])
    ends = "" in rest  # it is a token, no matter what follows
    if ends or not rest:
        return ""
    branches = [re.escape(first) + _alternatives(more) for first, more in sorted(rest.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _find(pattern: re.Pattern[str], text: str, start: int = 0) -> int | None:
    """Return where the first match begins."""
    while start < len(text):
        found = pattern.search(text, start, start + 2 * _WINDOW)
        if found is not None:
            return found.start()
        start += _WINDOW
    return None
