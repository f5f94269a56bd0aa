"""Time in the store: aware datetimes in UTC inside, RFC 3339 outside."""

from datetime import UTC, datetime
from typing import overload


def utc_now() -> datetime:
    """Return the time by this process's clock."""
    return datetime.now(UTC)


@overload
def rfc3339(moment: datetime) -> str: ...


@overload
def rfc3339(moment: None) -> None: ...


def rfc3339(moment: datetime | None) -> str | None:
    """Return `2026-01-31T09:30:00.000Z`: in UTC, to the millisecond, as the API writes times."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
