"""The query parameter that filters jobs by their metadata: `metadata[k]=v`, as OpenAI's clients send it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.resources.fine_tuning import Labels

_FIELD = "metadata"
_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)

METADATA_PARAMETER: dict[str, Any] = {
    "name": _FIELD,
    "in": "query",
    "required": False,
    "style": "deepObject",
    "explode": True,
    "description": "Only jobs with all of these pairs, `metadata[k]=v`; `metadata=null` lists jobs without metadata.",
    "schema": {
        "type": "object",
        "maxProperties": 16,
        "propertyNames": {"minLength": 1, "maxLength": 64},
        "additionalProperties": {"type": "string", "maxLength": 512},
    },
}


async def _labels(request: Request) -> Mapping[str, str] | None:
    asked = [(name, value) for name, value in request.query_params.multi_items() if name.startswith(_FIELD)]
    if asked == [(_FIELD, "null")]:
        return None
    pairs = {name[len(_FIELD) + 1 : -1]: value for name, value in asked if _is_pair(name)}
    if len(pairs) < len(asked):
        raise _invalid("give `metadata[k]=v`, each k once, or `metadata=null`")
    return checked_labels(pairs)


def checked_labels(pairs: dict[str, str]) -> Mapping[str, str]:
    """Return `pairs`. Raise InvalidRequest for metadata that no job can have."""
    try:
        return _LABELS.validate_python(pairs)
    except ValidationError:
        raise _invalid("up to 16 pairs of names of up to 64 characters and texts of up to 512") from None


def _invalid(words: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{_FIELD}': {words}.", param=_FIELD, code="invalid_value")


def _is_pair(name: str) -> bool:
    """Return whether the parameter has a key: empty brackets denote a list."""
    return name.startswith(f"{_FIELD}[") and name.endswith("]") and len(name) > len(f"{_FIELD}[]")


Wanted = Annotated[Mapping[str, str] | None, Depends(_labels)]
