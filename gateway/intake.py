"""What a client may send in one request, over HTTP or gRPC: so many bytes, and not too slowly."""

import time

from loragate.gateway.http.errors import PayloadTooLarge, RequestTimeout

SLOWEST_SENDER = 500  # bytes a second, on the whole; what Apache's mod_reqtimeout asks for


class Intake:
    """Counts one body. `stall_seconds` may pass without a byte of it, and before it must have its pace."""

    def __init__(self, limit: int, stall_seconds: float) -> None:
        self._limit = limit
        self._stall_seconds = stall_seconds
        self._total = 0
        self._started = time.monotonic()

    @property
    def patience(self) -> float:
        """Seconds that are left for the next piece to come."""
        due = self._started + self._stall_seconds + self._total / SLOWEST_SENDER
        return max(0.0, min(self._stall_seconds, due - time.monotonic()))

    def take(self, size: int) -> None:
        """So much more came. Raises PayloadTooLarge."""
        self._total += size
        self.announce(self._total)

    def announce(self, size: int) -> None:
        """So much there is to be in all. Raises PayloadTooLarge."""
        if size > self._limit:
            raise PayloadTooLarge(f"The body is over this route's limit of {self._limit} bytes.")

    def stalled(self) -> RequestTimeout:
        """The next piece did not come in time."""
        return RequestTimeout("The body came too slowly.")
