"""A parser for Python literals, because the output of a model must not be passed to Python's own compiler."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>[][(){},:=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_CONSTANTS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_MAX_DEPTH = 64


def keyword_arguments(text: str) -> dict[str, Any]:
    """Return the arguments in a text like `(a=1, b=["x"])`; JSON's constants are accepted too. Raise ValueError."""
    reader = _Reader(text)
    arguments: dict[str, Any] = {}
    reader.expect("(")
    while not reader.skip(")"):
        name = reader.next("name")
        reader.expect("=")
        arguments[name] = reader.value()
        if not reader.skip(","):
            reader.expect(")")
            break
    if reader.rest():
        raise ValueError("there is more after the arguments")
    return arguments


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def next(self, kind: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup != kind:
            raise ValueError(f"no {kind} at {self._at}")
        self._at = match.end()
        return match[kind]

    def skip(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["sign"] != sign:
            return False
        self._at = match.end()
        return True

    def expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise ValueError(f"no {sign} at {self._at}")

    def rest(self) -> str:
        return self._text[self._at :].strip()

    def value(self) -> Any:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"no value at {self._at}")
        if match["number"] is not None:
            return _number(self.next("number"))
        if match["string"] is not None:
            return _string(self.next("string"))
        if match["name"] is not None:
            return _constant(self.next("name"))
        return self._collection()

    def _collection(self) -> Any:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        try:
            if self.skip("{"):
                return dict(self._items("}", self._pair))
            if self.skip("["):
                return self._items("]", self.value)
            self.expect("(")
            return self._items(")", self.value)
        finally:
            self._depth -= 1

    def _items(self, end: str, read: Callable[[], T]) -> list[T]:
        items: list[T] = []
        while not self.skip(end):
            items.append(read())
            if not self.skip(","):
                self.expect(end)
                break
        return items

    def _pair(self) -> tuple[str, Any]:
        key = _string(self.next("string"))
        self.expect(":")
        return key, self.value()


def _number(text: str) -> int | float:
    return float(text) if set(text) & set(".eE") else int(text)


def _string(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16))
    return _ESCAPES.get(match[4], match[4] if match[4] in "\\'\"" else match[0])


def _constant(name: str) -> bool | None:
    if name not in _CONSTANTS:
        raise ValueError(f"no constant {name}")
    return _CONSTANTS[name]
