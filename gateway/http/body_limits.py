"""What a client may send in one request, over HTTP or gRPC: so many bytes, and not too slowly."""

import time
from dataclasses import dataclass

from loragate.gateway.errors import PayloadTooLarge, RequestTimeout

SLOWEST_SENDER = 500  # bytes a second of small bodies; what Apache's mod_reqtimeout asks for


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly a body may come: without a byte for `stall_seconds` at most, and at `rate` bytes a second, which are
    asked for after the first `window` seconds. Who was faster may be slower for as long, and no longer."""

    stall_seconds: float
    rate: float = SLOWEST_SENDER
    window: float | None = None  # None: as long as a stall

    @property
    def credit(self) -> float:
        """Seconds."""
        return self.stall_seconds if self.window is None else self.window


class Intake:
    """Counts one body."""

    def __init__(self, limit: int, pace: Pace) -> None:
        self._limit = limit
        self._pace = pace
        self._total = 0
        self._due = time.monotonic() + pace.credit

    @property
    def patience(self) -> float:
        """Seconds that are left for the next piece to come."""
        return max(0.0, min(self._pace.stall_seconds, self._due - time.monotonic()))

    def take(self, size: int) -> None:
        """So much more came. Raises PayloadTooLarge."""
        self._total += size
        self._due = min(self._due + size / self._pace.rate, time.monotonic() + self._pace.credit)
        self.announce(self._total)

    def announce(self, size: int) -> None:
        """So much there is to be in all. Raises PayloadTooLarge."""
        if size > self._limit:
            raise PayloadTooLarge(f"The body is over this route's limit of {self._limit} bytes.")

    def stalled(self) -> RequestTimeout:
        """The next piece did not come in time."""
        return RequestTimeout("The body came too slowly.")
