"""Spares callers the wait for something that is known to be away."""

import time
from collections.abc import Callable

_FAILURES = 3  # in a row open it
_OPEN_SECONDS = 1.0


class CircuitBreaker:
    """Closed: calls go through. Open: none do, for a second; then one at a time may try, and closes it if it can."""

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed  # told whether it is open
        self._failures = 0
        self._retry_at = 0.0  # monotonic

    @property
    def is_open(self) -> bool:
        """The last calls failed, and none has succeeded since."""
        return self._failures >= _FAILURES

    def lets_through(self) -> bool:
        """Whether a call may be tried now; one that may must end in `succeeded` or `failed`."""
        if not self.is_open:
            return True
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + _OPEN_SECONDS
        return True

    def succeeded(self) -> None:
        """It answered."""
        if self.is_open:
            self._changed(False)
        self._failures = 0

    def failed(self) -> None:
        """It did not, or not in time."""
        self._failures += 1
        self._retry_at = time.monotonic() + _OPEN_SECONDS
        if self._failures == _FAILURES:
            self._changed(True)
