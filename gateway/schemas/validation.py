"""What is wrong with a body, in the words of the error envelope."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from loragate.gateway.errors import InvalidRequest
from loragate.prompts.validation import InvalidDocument, InvalidField, first_invalid_field, read

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], document: Mapping[str, Any]) -> M:
    """`document` as a request's body. Raises InvalidRequest with the name of the field at fault."""
    try:
        return read(model, document)
    except InvalidDocument as refused:
        raise _invalid(refused.reason) from None


def refusal(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first of pydantic's findings."""
    return _invalid(first_invalid_field(errors))


def _invalid(reason: InvalidField) -> InvalidRequest:
    code = "unknown_parameter" if reason.unknown_field else "invalid_value"
    return InvalidRequest(str(reason), param=reason.param, code=code)
