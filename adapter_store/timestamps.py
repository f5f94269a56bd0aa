"""Time as the store keeps it: aware datetimes in UTC inside, RFC 3339 outside."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T09:30:00Z`, with microseconds where there are any."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
