"""Validation of request bodies, with errors for the error envelope."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from loragate.gateway.errors import InvalidRequest
from loragate.prompts.bodies import InvalidDocument, InvalidField, first_invalid_field, validate

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], document: Mapping[str, Any]) -> M:
    """Return `document` as a request body. Raise InvalidRequest with the name of the field at fault."""
    try:
        return validate(model, document)
    except InvalidDocument as error:
        raise _invalid(error.field) from None


def first_error(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return the error of the first of pydantic's findings."""
    return _invalid(first_invalid_field(errors))


def _invalid(field: InvalidField) -> InvalidRequest:
    code = "unknown_parameter" if field.unknown else "invalid_value"
    return InvalidRequest(str(field), param=field.param, code=code)
