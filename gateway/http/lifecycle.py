"""Which requests run in this process, and how it stops: refuse newcomers, wait, then end what is left."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loragate.gateway.resilience.timeouts import wait_for_event


class Lifecycle:
    """Shared by the middleware that counts requests and the server that drains them."""

    def __init__(self) -> None:
        self.draining = False
        self.expired = False
        self._to_end: set[Callable[[], None]] = set()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Requests that have not got their whole response yet."""
        return self._running

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request for as long as the block lasts."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    def begin_drain(self) -> None:
        """From now on newcomers are refused; running requests go on."""
        self.draining = True

    def expire(self) -> None:
        """The drain's deadline: what still runs is told to end."""
        self.expired = True
        for end in list(self._to_end):
            end()

    def at_deadline(self, end: Callable[[], None]) -> None:
        """Call `end`, once; at once where the deadline has passed."""
        self._to_end.add(end)
        if self.expired:
            end()

    def not_at_deadline(self, end: Callable[[], None]) -> None:
        """It has ended by itself."""
        self._to_end.discard(end)

    async def idle(self, seconds: float) -> bool:
        """Wait until nothing runs; False if that took longer than `seconds`."""
        return await wait_for_event(self._idle, seconds)
