"""A circuit breaker: while a service is known to be unavailable, its callers need not wait for it."""

import time
from collections.abc import Callable

_FAILURES = 3  # in a row open it
_OPEN_SECONDS = 1.0


class CircuitBreaker:
    """Closed, it allows all calls. Open, it allows none for a second, then one at a time, and closes if that
    succeeds."""

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed  # called with whether it is open
        self._failures = 0
        self._retry_at = 0.0  # monotonic

    @property
    def is_open(self) -> bool:
        """Whether the last calls failed and none has succeeded since."""
        return self._failures >= _FAILURES

    def allows_call(self) -> bool:
        """Return whether a call may be tried now; after one that may, call `succeeded` or `failed`."""
        if not self.is_open:
            return True
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + _OPEN_SECONDS
        return True

    def succeeded(self) -> None:
        """Record that the service responded."""
        if self.is_open:
            self._changed(False)
        self._failures = 0

    def failed(self) -> None:
        """Record that the service did not respond, or not in time."""
        self._failures += 1
        self._retry_at = time.monotonic() + _OPEN_SECONDS
        if self._failures == _FAILURES:
            self._changed(True)
