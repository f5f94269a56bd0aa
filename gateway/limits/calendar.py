"""Days and months of UTC as numbers. Times are microseconds since 1970."""

from datetime import UTC, datetime, timedelta

_SECOND = 1_000_000


def day_number(now: float) -> int:
    """Return the days since 1970."""
    return int(now // (86400 * _SECOND))


def month_number(now: float) -> int:
    """Return the months since year 0."""
    moment = _moment(now)
    return moment.year * 12 + moment.month - 1


def start_of_day(now: float) -> datetime:
    """Return the start of the day that contains `now`."""
    return _moment(now).replace(hour=0, minute=0, second=0, microsecond=0)


def start_of_month(now: float) -> datetime:
    """Return the start of the month that contains `now`."""
    return start_of_day(now).replace(day=1)


def until_next_day(now: float) -> float:
    """Return the microseconds until the next day starts."""
    return (start_of_day(now) + timedelta(days=1)).timestamp() * _SECOND - now


def until_next_month(now: float) -> float:
    """Return the microseconds until the next month starts."""
    return (start_of_month(now) + timedelta(days=32)).replace(day=1).timestamp() * _SECOND - now


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now / _SECOND, UTC)
