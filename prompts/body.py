"""The base class of all request bodies."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

_MAX_FIELDS = 128  # more than any object has: pydantic would collect an error for each


class Body(BaseModel):
    """A strict pydantic model: no conversions (`"1"` is not a number), and unknown fields are rejected by name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, document: Any) -> Any:
        if isinstance(document, dict) and len(document) > _MAX_FIELDS:
            raise PydanticCustomError("fields", "an object has too many fields", {})
        return document
