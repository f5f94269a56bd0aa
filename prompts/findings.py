"""Refusals that a schema raises about one of its fields."""

from pydantic_core import PydanticCustomError


def finding(param: str, message: str) -> PydanticCustomError:
    """An error about field `param`, for checks that see the whole body. `message` must not quote the input."""
    return PydanticCustomError("refused", "{message}", {"message": message, "param": param})
