"""The base of all request bodies."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

_MOST_FIELDS = 128  # more than any object has: pydantic would collect a finding about each


class Body(BaseModel):
    """JSON types are taken as they are (`"1"` is no number), unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _is_no_flood(cls, document: Any) -> Any:
        if isinstance(document, dict) and len(document) > _MOST_FIELDS:
            raise PydanticCustomError("fields", "an object has too many fields", {})
        return document
