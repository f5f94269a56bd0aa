"""A strict JSON parser for untrusted input: bounded before it is parsed, without what parsers disagree about.

Python's parser takes the last of duplicate keys, accepts NaN, and builds objects up to the limit of memory. Here
the text's size, nesting and number of values are checked on the raw bytes, before any object exists.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from loragate.peft_format.errors import AdapterRejected, quoted

# Possessive, so that an unterminated string costs one pass and not one for every quote in it.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True)
class Limits:
    """Limits of one document.

    Attributes:
        size: bytes of text.
        depth: objects and lists inside each other.
        values: strings, separators and brackets together; each parsed object costs at least one.
    """

    size: int
    depth: int
    values: int


def parse_object(raw: bytes, limits: Limits, where: str) -> dict[str, object]:
    """Return the JSON object in `raw`; raises AdapterRejected with `where` as its param."""
    _check_bounds(raw, limits, where)
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
        )
        if b"\\u" in raw:
            _check_surrogates(value)
    except _Malformed as error:
        raise AdapterRejected(f"{where} {error}.", where) from None
    except UnicodeError:
        raise AdapterRejected(f"{where} is not valid UTF-8.", where) from None
    except json.JSONDecodeError as error:
        raise AdapterRejected(f"{where} is not valid JSON: {error.msg} at byte {error.pos}.", where) from None
    if not isinstance(value, dict):
        raise AdapterRejected(f"{where} must hold one JSON object.", where)
    return value


class _Malformed(Exception):
    """A fault of the document, as the end of a sentence that starts with the document's name."""


def _check_bounds(raw: bytes, limits: Limits, where: str) -> None:
    if len(raw) > limits.size:
        raise AdapterRejected(f"{where} is {len(raw)} bytes long; at most {limits.size} are read.", where)
    if raw.count(b'"') > 2 * limits.values:
        raise _too_many(limits, where)
    skeleton, strings = _STRING.subn(b"", raw)
    brackets = np.frombuffer(skeleton.translate(None, _NOT_BRACKETS), dtype=np.uint8)
    if strings + skeleton.count(b",") + brackets.size > limits.values:
        raise _too_many(limits, where)
    opening = (brackets == ord("{")) | (brackets == ord("["))
    depth = np.cumsum(np.where(opening, 1, -1)).max(initial=0)
    if depth > limits.depth:
        raise AdapterRejected(f"{where} is nested too deeply; at most {limits.depth} levels are read.", where)


def _too_many(limits: Limits, where: str) -> AdapterRejected:
    return AdapterRejected(f"{where} holds too many values; at most {limits.values} are read.", where)


def _unique_keys(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    unique: dict[str, object] = {}
    for key, value in pairs:
        if key in unique:
            raise _Malformed(f"has the key {quoted(key)} twice")
        unique[key] = value
    return unique


def _no_constant(name: str) -> object:
    raise _Malformed(f"holds {name}, which is not JSON")


def _bounded_int(digits: str) -> int:
    # Far above any size or offset, and far below where converting digits becomes slow.
    if len(digits) > 20:
        raise _Malformed("holds a whole number of more than 20 digits")
    return int(digits)


def _check_surrogates(value: object) -> None:
    # A lone surrogate parses, but cannot be written to a log or a response.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
