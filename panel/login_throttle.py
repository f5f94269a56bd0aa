"""A rate limit for sign-in attempts."""

import time
from collections import deque
from collections.abc import Callable


class LoginThrottle:
    """Allows `max_attempts` per address in `seconds`, and ten times as many for all addresses together."""

    def __init__(
        self, max_attempts: int = 20, seconds: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_attempts = max_attempts
        self._seconds = seconds
        self._now = now
        self._recent: deque[tuple[float, str]] = deque()

    def record(self, address: str) -> float:
        """Record an attempt and return 0, or return the seconds until the address may try again."""
        since = self._now() - self._seconds
        while self._recent and self._recent[0][0] <= since:
            self._recent.popleft()
        own = [when for when, who in self._recent if who == address]
        if len(own) >= self._max_attempts:
            return own[0] - since
        if len(self._recent) >= 10 * self._max_attempts:
            return self._recent[0][0] - since
        self._recent.append((self._now(), address))
        return 0.0
