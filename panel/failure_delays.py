"""Delays of failed sign-ins, which slow guessing down without locking users out."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from loragate.gateway.connections.peers import network_of


class FailureDelays:
    """Counts each address's failures of the last `seconds`. The first `free` ones cost nothing; each further one delays
    the response to it by another quarter of a second, up to `max_delay` seconds.

    A valid key is neither counted nor delayed, so failures never lock others out. At most `max_delayed` responses
    wait at once; further ones do not, because each keeps a connection open.
    """

    def __init__(
        self,
        free: int = 3,
        max_delay: float = 5.0,
        seconds: float = 60.0,
        max_addresses: int = 10_000,
        max_delayed: int = 100,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = free
        self._max_delay = max_delay
        self._seconds = seconds
        self._max_addresses = max_addresses
        self._max_delayed = max_delayed
        self._delayed = 0
        self._now = now
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # the last one's time, and how many

    async def delay(self, address: str) -> None:
        """Record a failure and wait before the response to it."""
        seconds = self.record(address)
        if seconds == 0 or self._delayed >= self._max_delayed:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed -= 1

    def record(self, address: str) -> float:
        """Record a failure and return the seconds for which to delay the response."""
        address = network_of(address)
        last, count = self._failures.pop(address, (0.0, 0))
        now = self._now()
        count = count + 1 if now - last < self._seconds else 1
        self._failures[address] = (now, count)
        if len(self._failures) > self._max_addresses:
            self._failures.popitem(last=False)
        return min(self._max_delay, max(0, count - self._free) / 4)
