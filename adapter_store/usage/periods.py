"""Hours and days of usage, in UTC."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum


class Width(StrEnum):
    HOUR = "hour"
    DAY = "day"

    @property
    def duration(self) -> timedelta:
        return timedelta(hours=1) if self is Width.HOUR else timedelta(days=1)


def floor(moment: datetime, width: Width) -> datetime:
    """Return the start of the hour or day of `moment`."""
    hour = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return hour if width is Width.HOUR else hour.replace(hour=0)


def ceil(moment: datetime, width: Width) -> datetime:
    """Return the first start of an hour or day that is not before `moment`."""
    start = floor(moment, width)
    return start if start == moment else start + width.duration
