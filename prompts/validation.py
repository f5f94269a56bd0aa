"""Pydantic's findings in words. What the caller sent is never quoted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

M = TypeVar("M", bound=BaseModel)

_WORDS = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
}


@dataclass(frozen=True)
class InvalidField:
    """Why a document was refused. `param` is a dotted path such as `messages.0.role`; None for the whole."""

    param: str | None
    words: str
    unknown_field: bool

    def __str__(self) -> str:
        return f"Invalid '{self.param}': {self.words}." if self.param else f"{self.words}."


class InvalidDocument(ValueError):
    """A document is none of its model."""

    def __init__(self, reason: InvalidField) -> None:
        super().__init__(str(reason))
        self.reason = reason


def read(model: type[M], document: Mapping[str, Any]) -> M:
    """`document` as what it should be. Raises Refused with the first reason."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        findings = error.errors(include_input=False, include_url=False)
        raise InvalidDocument(
            first_invalid_field([{**field_error, "loc": _sent(document, field_error)} for field_error in findings])
        ) from None


def first_invalid_field(errors: Sequence[Mapping[str, Any]]) -> InvalidField:
    """Of pydantic's findings, whose paths are as they were sent."""
    first = errors[0]
    path = [*first["loc"], *_named(first)]
    words = _WORDS.get(first["type"], first["msg"].rstrip("."))
    return InvalidField(".".join(str(part) for part in path) or None, words, first["type"] == "extra_forbidden")


def _sent(document: Any, field_error: Mapping[str, Any]) -> list[Any]:
    """The finding's path without the names of a union's alternatives, which pydantic puts into it."""
    path: list[Any] = []
    node, loc = document, field_error["loc"]
    for position, part in enumerate(loc):
        is_missing = field_error["type"] == "missing" and position == len(loc) - 1
        there = (isinstance(node, dict) and part in node) or (isinstance(node, list) and part in range(len(node)))
        if there or is_missing or isinstance(part, int):
            path.append(part)
        if there:
            node = node[part]
    return path


def _named(error: Mapping[str, Any]) -> tuple[str, ...]:
    """The field that a check of the whole object found fault with (see `findings`)."""
    param = error.get("ctx", {}).get("param")
    return () if param is None else (param,)


def field_error(param: str, message: str) -> PydanticCustomError:
    """An error about field `param`, for checks that see the whole body. `message` must not quote the input."""
    return PydanticCustomError("refused", "{message}", {"message": message, "param": param})
