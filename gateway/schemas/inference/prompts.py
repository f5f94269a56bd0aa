"""The forms of a prompt: text, or token ids of the base model."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

Prompt = str | list[int]
"""A text, or a non-empty list of integers that have not been checked against the vocabulary."""


def _as_list(value: Any) -> Any:
    if isinstance(value, str) or _is_token_ids(value):
        return [value]
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return value
    if isinstance(value, list) and value and all(_is_token_ids(item) for item in value):
        return value
    raise PydanticCustomError(
        "prompt", "must be a string, a list of strings, a list of token ids, or a list of such lists", {}
    )


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


_TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_Texts = Annotated[list[str], Field(min_length=1)]
_ManyTokenIds = Annotated[list[_TokenIds], Field(min_length=1)]

Prompts = Annotated[
    list[Any], BeforeValidator(_as_list, json_schema_input_type=str | _Texts | _TokenIds | _ManyTokenIds)
]
"""A string, token ids, a list of strings or a list of token-id lists; parsed into a list of `Prompt`."""
