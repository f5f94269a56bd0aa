"""A bucket by GCRA (the leaky bucket of ATM, ITU-T I.371): all of its state is the time when it will be empty."""

import math
from collections.abc import Iterator

_MOST_LOWS = 16  # more are kept coarsely


class Bucket:
    """Times and costs in microseconds; a cost is a share of the window in which a full bucket empties."""

    def __init__(self) -> None:
        self.empty_at = 0.0
        self._lows: list[tuple[float, float]] = []  # (when, backlog), both ascending

    def backlog(self, now: float) -> float:
        """How long it takes until it is empty."""
        return max(self.empty_at, now) - now

    def charge(self, now: float, cost: float) -> None:
        """Put in `cost`, room or not."""
        backlog = self.backlog(now)
        self.note_low(now, backlog)
        self.empty_at = now + backlog + cost

    def give_back(self, now: float, cost: float, since: float) -> None:
        """It becomes what it would be if `cost` less had been charged at `since`.

        What would then have leaked in vain is not given back: the lowest backlog since then bounds what is.
        """
        backlog = self.backlog(now)
        back = min(cost, backlog, self._low_since(since))
        self.empty_at = now + backlog - back
        self.note_low(now, backlog - back)

    def note_low(self, now: float, backlog: float) -> None:
        """It stands at `backlog` now."""
        lows = self._lows
        while lows and lows[-1][1] >= backlog:
            lows.pop()
        lows.append((now, backlog))
        if len(lows) > _MOST_LOWS:
            lows[:2] = [(lows[1][0], lows[0][1])]

    def _low_since(self, since: float) -> float:
        return next(self._after(since), math.inf)

    def _after(self, since: float) -> Iterator[float]:
        return (backlog for when, backlog in self._lows if when > since)
