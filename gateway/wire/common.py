"""Cursor lists."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, overload

from loragate.adapter_store.limits import Limits


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
