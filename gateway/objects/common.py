"""Types that all objects share: lists, limits, timestamps, errors."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar, overload

from pydantic import Field
from typing_extensions import TypedDict

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, in UTC.")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Residency = Annotated[
    Literal["device", "host", "disk", "none"],
    Field(description="The engine's highest tier that holds the weights; null while the engine does not respond."),
]

T = TypeVar("T", bound=Mapping[str, object])


class Page(TypedDict):
    """One page of a list. Pass `last_id` as `after` to get the next page; both ids are null if the page is empty."""

    object: Literal["list"]
    has_more: bool
    first_id: str | None
    last_id: str | None


class PageOf(Page, Generic[T]):
    """A page of these items."""

    data: list[T]


class ErrorDetail(TypedDict):
    """The error: `message` is for people and `code` for programs; `param` is the dotted path of the field at fault."""

    message: str
    type: Literal["invalid_request_error", "permission_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str | None


class ErrorEnvelope(TypedDict):
    """The shape of every error response."""

    error: ErrorDetail


def list_object(data: Sequence[T], *, has_more: bool = False, cursor: str = "id") -> PageOf[T]:
    """Return a page of these items; its ids are the values of their field `cursor`."""
    return {
        "object": "list",
        "data": list(data),
        "has_more": has_more,
        "first_id": str(data[0][cursor]) if data else None,
        "last_id": str(data[-1][cursor]) if data else None,
    }


@overload
def unix_seconds(moment: datetime) -> int: ...


@overload
def unix_seconds(moment: None) -> None: ...


def unix_seconds(moment: datetime | None) -> int | None:
    """Return the moment as whole seconds of Unix time."""
    return None if moment is None else int(moment.timestamp())
