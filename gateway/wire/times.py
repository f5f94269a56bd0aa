"""Times as they are told: as text, or as OpenAI has them, in whole seconds of Unix time."""

from datetime import UTC, datetime
from typing import overload


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
