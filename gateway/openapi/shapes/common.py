"""What answers have in common."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, in UTC.")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Residency = Annotated[
    Literal["device", "host", "disk", "none"],
    Field(description="The highest of the engine's tiers that has its weights; null while the engine does not answer."),
]


class Page(TypedDict):
    """One page of a list. `last_id` is the `after` of the next one; both ids are null where the page is empty."""

    object: Literal["list"]
    has_more: bool
    first_id: str | None
    last_id: str | None


class ErrorDetail(TypedDict):
    """What went wrong: `message` for people, `code` for programs, `param` the field at fault as a dotted path."""

    message: str
    type: Literal["invalid_request_error", "permission_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str | None


class ErrorEnvelope(TypedDict):
    """Every refusal has this shape."""

    error: ErrorDetail
