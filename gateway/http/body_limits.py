"""The limits of one request's body, over HTTP or gRPC: its size, and how slowly it may arrive."""

import time
from dataclasses import dataclass

from loragate.gateway.errors import PayloadTooLarge, RequestTimeout

MIN_SEND_RATE = 500  # bytes per second, for small bodies; the value of Apache's mod_reqtimeout


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly a body may arrive: with pauses of at most `stall_seconds`, and at `rate` bytes per second or more,
    averaged over `window` seconds. A client that was faster may be slower for the time gained, up to the window."""

    stall_seconds: float
    rate: float = MIN_SEND_RATE
    window: float | None = None  # None: as long as a stall

    @property
    def credit(self) -> float:
        """The window in seconds."""
        return self.stall_seconds if self.window is None else self.window


class BodyCounter:
    """Counts the bytes of one body."""

    def __init__(self, limit: int, pace: Pace) -> None:
        self._limit = limit
        self._pace = pace
        self._total = 0
        self._due = time.monotonic() + pace.credit

    @property
    def timeout(self) -> float:
        """Seconds until the next piece has to arrive."""
        return max(0.0, min(self._pace.stall_seconds, self._due - time.monotonic()))

    def add(self, size: int) -> None:
        """Count a piece of the body. Raise PayloadTooLarge."""
        self._total += size
        self._due = min(self._due + size / self._pace.rate, time.monotonic() + self._pace.credit)
        self.check_size(self._total)

    def check_size(self, size: int) -> None:
        """Raise PayloadTooLarge if a body of `size` bytes exceeds the limit."""
        if size > self._limit:
            raise PayloadTooLarge(f"The body exceeds this route's limit of {self._limit} bytes.")

    def too_slow(self) -> RequestTimeout:
        """Return the error for a piece that has not arrived in time."""
        return RequestTimeout("The body arrived too slowly.")
