"""UTC's days and months, counted. Times are microseconds since 1970."""

from datetime import UTC, datetime, timedelta

_SECOND = 1_000_000


def day_of(now: float) -> int:
    """Days since 1970."""
    return int(now // (86400 * _SECOND))


def month_of(now: float) -> int:
    """Months since year 0."""
    moment = _moment(now)
    return moment.year * 12 + moment.month - 1


def start_of_day(now: float) -> datetime:
    """Of the day that `now` is in."""
    return _moment(now).replace(hour=0, minute=0, second=0, microsecond=0)


def start_of_month(now: float) -> datetime:
    """Of the month that `now` is in."""
    return start_of_day(now).replace(day=1)


def until_next_day(now: float) -> float:
    """Microseconds."""
    return (start_of_day(now) + timedelta(days=1)).timestamp() * _SECOND - now


def until_next_month(now: float) -> float:
    """Microseconds."""
    return (start_of_month(now) + timedelta(days=32)).replace(day=1).timestamp() * _SECOND - now


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now / _SECOND, UTC)
