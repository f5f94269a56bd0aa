"""Cursor lists."""

from collections.abc import Sequence
from typing import Any


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
