"""Pydantic's findings in the words of the error envelope. What the caller sent is never quoted."""

from collections.abc import Mapping, Sequence
from typing import Any

from loragate.gateway.http.errors import InvalidRequest

_WORDS = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
}


def refusal(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first finding, with `param` as a dotted path such as `messages.0.role`."""
    first = errors[0]
    path = [*first["loc"], *_named(first)]
    param = ".".join(str(part) for part in path) or None
    words = _WORDS.get(first["type"], first["msg"].rstrip("."))
    message = f"Invalid '{param}': {words}." if param else f"{words}."
    code = "unknown_parameter" if first["type"] == "extra_forbidden" else "invalid_value"
    return InvalidRequest(message, param=param, code=code)


def _named(error: Mapping[str, Any]) -> tuple[str, ...]:
    """The field that a check of the whole object found fault with (see `schemas.findings`)."""
    param = error.get("ctx", {}).get("param")
    return () if param is None else (param,)
