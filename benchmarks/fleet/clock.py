"""A virtual clock: what is due next happens next, and no time passes in between."""

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Runs actions in the order of their times; those of one time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plan an action; `time` is in seconds since the start."""
        heapq.heappush(self._due, (time, next(self._numbers), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action so many seconds from now."""
        self.at(self.now + seconds, action)

    def run(self) -> None:
        """Run until nothing is planned."""
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action()
