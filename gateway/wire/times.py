"""Times as text."""

from datetime import UTC, datetime


def rfc3339(moment: datetime | None) -> str | None:
    """In UTC, with a `Z`, as the contract writes times."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
