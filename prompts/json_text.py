"""JSON as models write it, held to the standard."""

import json
from typing import Any


def parsed(text: str) -> Any:
    """What strict JSON says. Raises ValueError for anything else, NaN and bottomless nesting included."""
    try:
        text.encode()  # half a surrogate pair cannot be sent on
        return json.loads(text, parse_constant=_refuse, strict=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumped(value: Any) -> str:
    """As JSON text that can be encoded."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isascii() or _encodes(text) else json.dumps(value, allow_nan=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
