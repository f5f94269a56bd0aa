"""Pydantic's findings in the words of the error envelope. What the caller sent is never quoted."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from loragate.gateway.http.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)

_WORDS = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
}


def validated(model: type[M], document: Mapping[str, Any]) -> M:
    """`document` as a request's body. Raises InvalidRequest with the name of the field at fault."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        findings = error.errors(include_input=False, include_url=False)
        raise refusal([{**finding, "loc": _sent(document, finding)} for finding in findings]) from None


def refusal(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first finding, with `param` as a dotted path such as `messages.0.role`."""
    first = errors[0]
    path = [*first["loc"], *_named(first)]
    param = ".".join(str(part) for part in path) or None
    words = _WORDS.get(first["type"], first["msg"].rstrip("."))
    message = f"Invalid '{param}': {words}." if param else f"{words}."
    code = "unknown_parameter" if first["type"] == "extra_forbidden" else "invalid_value"
    return InvalidRequest(message, param=param, code=code)


def _sent(document: Any, finding: Mapping[str, Any]) -> list[Any]:
    """The finding's path without the names of a union's alternatives, which pydantic puts into it."""
    path: list[Any] = []
    node, loc = document, finding["loc"]
    for position, part in enumerate(loc):
        is_missing = finding["type"] == "missing" and position == len(loc) - 1
        there = (isinstance(node, dict) and part in node) or (isinstance(node, list) and part in range(len(node)))
        if there or is_missing or isinstance(part, int):
            path.append(part)
        if there:
            node = node[part]
    return path


def _named(error: Mapping[str, Any]) -> tuple[str, ...]:
    """The field that a check of the whole object found fault with (see `schemas.findings`)."""
    param = error.get("ctx", {}).get("param")
    return () if param is None else (param,)
