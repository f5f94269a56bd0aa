"""The base of all request bodies."""

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """JSON types are taken as they are (`"1"` is no number), unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)
