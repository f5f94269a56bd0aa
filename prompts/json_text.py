"""JSON as models write it, parsed and written strictly."""

import json
from typing import Any


def parse_json(text: str) -> Any:
    """Parse strict JSON. Raise ValueError for anything else, including NaN and excessive nesting."""
    try:
        text.encode()  # half a surrogate pair cannot be encoded
        return json.loads(text, parse_constant=_reject, strict=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump_json(value: Any) -> str:
    """Return the value as JSON text that can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isascii() or _encodes(text) else json.dumps(value, allow_nan=False)


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
