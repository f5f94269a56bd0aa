"""Request bodies: their base classes, their validation, and its errors as text. Errors quote nothing of the input but
the beginnings of names of unknown fields.

Clients of other servers' APIs send more fields than this server acts on. Those that would not change the answer are
accepted and have no effect, so that existing clients work unchanged. Those that would change it are refused with a
message that says what to do instead, unless their value has no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

M = TypeVar("M", bound=BaseModel)

_MESSAGES = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
}
_MAX_FIELDS = 128  # more than any object has: pydantic would collect an error for each
_NAME_CHARACTERS = 100
_MESSAGE_CHARACTERS = 500


class Body(BaseModel):
    """A strict pydantic model: no conversions (`"1"` is not a number), and unknown fields are rejected by name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, document: Any) -> Any:
        if isinstance(document, dict) and len(document) > _MAX_FIELDS:
            raise PydanticCustomError("fields", "an object has too many fields", {})
        return document


@dataclass(frozen=True)
class Refused:
    """Why a field is refused. The values in `accepted` have no effect, and are accepted as null is."""

    why: str
    accepted: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ExtraFields:
    """Fields of a body that this server does not act on: those that are ignored, and those that are refused."""

    ignored: tuple[str, ...] = ()
    refused: Mapping[str, Refused] = field(default_factory=dict)

    def removed_from(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the body without these fields and without those that are null. Raise a field error for a refused
        one."""
        for name, refused in self.refused.items():
            value = document.get(name)
            if value is not None and value not in refused.accepted:
                raise field_error(name, refused.why)
        return {name: value for name, value in document.items() if value is not None and name not in self._names}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset({*self.ignored, *self.refused})

    def describe(self, schema: dict[str, Any]) -> None:
        """Add these fields to the JSON Schema of their body."""
        described = schema.setdefault("properties", {})
        described |= {name: {"description": "Accepted, without effect."} for name in self.ignored}
        for name, refused in self.refused.items():
            words = f"No other value is accepted: {refused.why}."
            described[name] = {"enum": [None, *refused.accepted], "description": words}


def _describe_extras(schema: dict[str, Any], body: type["ClientBody"]) -> None:
    body.extras.describe(schema)


class ClientBody(Body):
    """A body with `extras`. A field that is null counts as absent, also one that this server does not know."""

    model_config = ConfigDict(json_schema_extra=_describe_extras)
    extras: ClassVar[ExtraFields] = ExtraFields()

    @model_validator(mode="before")
    @classmethod
    def _drop_extras(cls, document: Any) -> Any:
        return cls.extras.removed_from(document) if isinstance(document, dict) else document


@dataclass(frozen=True)
class InvalidField:
    """The error in a document. `param` is a dotted path such as `messages.0.role`, or None for the whole document."""

    param: str | None
    message: str
    unknown: bool

    def __str__(self) -> str:
        return f"Invalid '{self.param}': {self.message}." if self.param else f"{self.message}."


class InvalidDocument(ValueError):
    """A document does not match its model; `field` is its first error."""

    def __init__(self, field: InvalidField) -> None:
        super().__init__(str(field))
        self.field = field


def field_error(param: str, message: str) -> PydanticCustomError:
    """Return an error of field `param`, for checks that see the whole body. `message` must not quote the input."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "param": param})


def validate(model: type[M], document: Mapping[str, Any]) -> M:
    """Return `document` as an instance of `model`. Raise InvalidDocument with the first error."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
        raise InvalidDocument(
            first_invalid_field([{**each, "loc": _document_path(document, each)} for each in errors])
        ) from None


def first_invalid_field(errors: Sequence[Mapping[str, Any]]) -> InvalidField:
    """Return the first of pydantic's errors, whose paths are those of the document."""
    first = errors[0]
    path = [*first["loc"], *_named_field(first)]
    message = _MESSAGES.get(first["type"], first["msg"].rstrip("."))
    param = ".".join(_shown(str(part), _NAME_CHARACTERS) for part in path) or None
    return InvalidField(param, _shown(message, _MESSAGE_CHARACTERS), first["type"] == "extra_forbidden")


def _shown(text: str, characters: int) -> str:
    """Return a text as errors show it. Clients choose the names of unknown fields, which may have megabytes."""
    if len(text) > characters:
        text = f"{text[:characters]}…"
    return text if text.isprintable() else ascii(text)[1:-1]


def _document_path(document: Any, error: Mapping[str, Any]) -> list[Any]:
    """Return the error's path without the names of a union's alternatives, which pydantic inserts."""
    path: list[Any] = []
    node, loc = document, error["loc"]
    for position, part in enumerate(loc):
        is_missing = error["type"] == "missing" and position == len(loc) - 1
        present = (isinstance(node, dict) and part in node) or (isinstance(node, list) and part in range(len(node)))
        if present or is_missing or isinstance(part, int):
            path.append(part)
        if present:
            node = node[part]
    return path


def _named_field(error: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the field that a check of the whole object named (see `field_error`)."""
    param = error.get("ctx", {}).get("param")
    return () if param is None else (param,)
