"""The time windows of limits: the minute of a leaky bucket, and the days and months of UTC. Times are microseconds
since 1970."""

import math
from datetime import UTC, datetime, timedelta

_SECOND = 1_000_000
_MAX_LOWS = 16  # more are merged


class Bucket:
    """A leaky bucket by GCRA (ITU-T I.371), whose whole state is the time when it will be empty. A cost is a share of
    the time that a full bucket takes to empty."""

    def __init__(self) -> None:
        self.empty_at = 0.0
        self._lows: list[tuple[float, float]] = []  # (when, backlog), both ascending

    def backlog(self, now: float) -> float:
        """Return how long the bucket takes to empty."""
        return max(self.empty_at, now) - now

    def charge(self, now: float, cost: float) -> None:
        """Add `cost` even if the bucket has no room."""
        backlog = self.backlog(now)
        self.note_low(now, backlog)
        self.empty_at = now + backlog + cost

    def refund(self, now: float, cost: float, since: float) -> None:
        """Make the level what it would be if `cost` less had been charged at `since`.

        What would have leaked out of an empty bucket since then is not refunded: the lowest backlog since `since` is
        the upper bound. That backlog would have been lower as well, so the refund lowers it for later refunds.
        """
        backlog = self.backlog(now)
        refund = min(cost, backlog, self._low_since(since))
        self.empty_at = now + backlog - refund
        self._lower(since, refund)
        self.note_low(now, backlog - refund)

    def note_low(self, now: float, backlog: float) -> None:
        """Record that the backlog is `backlog` now."""
        lows = self._lows
        while lows and lows[-1][1] >= backlog:
            lows.pop()
        lows.append((now, backlog))
        if len(lows) > _MAX_LOWS:
            lows[:2] = [(lows[1][0], lows[0][1])]

    def _low_since(self, since: float) -> float:
        return next((backlog for when, backlog in self._lows if when > since), math.inf)

    def _lower(self, since: float, refund: float) -> None:
        """Lower what was recorded after `since`; drop what was recorded before and is no longer lower."""
        lowered = [(when, backlog - refund) for when, backlog in self._lows if when > since]
        if lowered:
            lowest = lowered[0][1]
            self._lows = [low for low in self._lows if low[0] <= since and low[1] < lowest] + lowered


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
