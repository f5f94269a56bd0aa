"""How often somebody may try to sign in."""

import time
from collections import deque
from collections.abc import Callable


class Attempts:
    """`most` an address in `seconds`, and ten times as many for all addresses together, whatever comes of them."""

    def __init__(self, most: int = 20, seconds: float = 60.0, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._now = now
        self._made: deque[tuple[float, str]] = deque()

    def make(self, address: str) -> float:
        """Counts one, and returns 0; or the seconds until the address may make one."""
        since = self._now() - self._seconds
        while self._made and self._made[0][0] <= since:
            self._made.popleft()
        own = [when for when, who in self._made if who == address]
        if len(own) >= self._most:
            return own[0] - since
        if len(self._made) >= 10 * self._most:
            return self._made[0][0] - since
        self._made.append((self._now(), address))
        return 0.0
