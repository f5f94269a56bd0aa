"""What all objects share: lists, moments, limits, errors."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, overload

from pydantic import Field
from typing_extensions import TypedDict

from loragate.adapter_store.limits import Limits

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


def list_object(data: Sequence[dict[str, Any]], *, has_more: bool = False, cursor: str = "id") -> dict[str, Any]:
    """`after` of the next page is `last_id`: the last item's `cursor` field."""
    return {
        "object": "list",
        "data": list(data),
        "has_more": has_more,
        "first_id": str(data[0][cursor]) if data else None,
        "last_id": str(data[-1][cursor]) if data else None,
    }


def deleted_object(object_: str, id_: str, **more: object) -> dict[str, Any]:
    """What a DELETE answers."""
    return {"id": id_, "object": object_, "deleted": True, **more}


def limits_object(limits: Limits) -> dict[str, int | None]:
    """A tenant's, a key's or an adapter's."""
    return asdict(limits)


def rfc3339(moment: datetime | None) -> str | None:
    """In UTC, with a `Z`, as the contract writes times."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@overload
def unix_seconds(moment: datetime) -> int: ...


@overload
def unix_seconds(moment: None) -> None: ...


def unix_seconds(moment: datetime | None) -> int | None:
    """Whole ones."""
    return None if moment is None else int(moment.timestamp())
