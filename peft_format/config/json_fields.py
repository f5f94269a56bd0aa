"""Typed access to the fields of a parsed adapter_config.json; every error names the field."""

import math
from collections.abc import Mapping

from loragate.peft_format.errors import in_config, quoted

_MAX_NAMES = 65_536
_MAX_NAME = 16_384
_MAX_NUMBER = 1e6

Fields = Mapping[str, object]


def boolean(fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise in_config(name, f"{name} must be true or false, not {quoted(value)}.")
    return value


def positive_integer(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise in_config(name, f"{name} must be a whole number of at least 1, not {quoted(value)}.")
    return value


def number(value: object, name: str) -> float:
    """Return a finite number of at most 10⁶ either way: far above any real alpha, far below overflow."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise in_config(name, f"{name} must be a number, not {quoted(value)}.")
    if not math.isfinite(value) or abs(value) > _MAX_NUMBER:
        raise in_config(name, f"{name} must lie between -{_MAX_NUMBER:.0f} and {_MAX_NUMBER:.0f}.")
    return float(value)


def mapping(fields: Fields, name: str) -> Mapping[str, object]:
    """Return an object keyed by pattern; null is the empty object."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MAX_NAMES:
        raise in_config(name, f"{name} must be an object of at most {_MAX_NAMES} patterns.")
    for key in value:
        _checked_name(key, name)
    return value


def names(value: object, name: str, max_names: int = _MAX_NAMES) -> tuple[str, ...]:
    """Return a list of names; null is the empty list. Order and repeats are kept."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > max_names:
        raise in_config(name, f"{name} must be a list of at most {max_names} names, not {quoted(value)}.")
    return tuple(_checked_name(item, name) for item in value)


def pattern_or_names(fields: Fields, name: str) -> str | tuple[str, ...]:
    """Return a regular expression as a string, or a list of names."""
    value = fields.get(name)
    return _checked_name(value, name) if isinstance(value, str) and value else names(value or None, name)


def indices(fields: Fields, name: str) -> tuple[int, ...]:
    """Return one whole number or a list of them as a sorted tuple without repeats; null is the empty list."""
    value = fields.get(name)
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < _MAX_NAMES:
            raise in_config(name, f"{name} must hold layer numbers from 0, not {quoted(item)}.")
    return tuple(sorted(set(items)))


def token_ids(value: object, name: str) -> tuple[int, ...]:
    """Return a list of token ids in the file's order; null is the empty list."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_NAMES:
        raise in_config(name, f"{name} must be a list of at most {_MAX_NAMES} token ids, not {quoted(value)}.")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < 1 << 31:
            raise in_config(name, f"{name} must hold token ids from 0, not {quoted(item)}.")
    return tuple(value)


def _checked_name(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise in_config(name, f"{name} must hold non-empty strings, not {quoted(value)}.")
    if len(value) > _MAX_NAME:
        raise in_config(name, f"{name} holds a string of {len(value)} characters; at most {_MAX_NAME} are read.")
    return value
