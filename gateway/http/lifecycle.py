"""The requests that run in this process, and its drain: reject new requests, wait, then end the rest."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loragate.gateway.resilience.timeouts import wait_for_event


class Lifecycle:
    """Shared by the middleware that counts requests and the server that drains them."""

    def __init__(self) -> None:
        self.draining = False
        self.expired = False
        self._deadline_callbacks: set[Callable[[], None]] = set()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """The number of requests whose response is not complete."""
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
        """Start rejecting new requests; running ones continue."""
        self.draining = True

    def expire(self) -> None:
        """End what still runs, at the drain's deadline."""
        self.expired = True
        for end in list(self._deadline_callbacks):
            end()

    def add_deadline_callback(self, end: Callable[[], None]) -> None:
        """Call `end` once, at the deadline; at once if that has passed."""
        self._deadline_callbacks.add(end)
        if self.expired:
            end()

    def remove_deadline_callback(self, end: Callable[[], None]) -> None:
        """Do not call `end`, because its work has ended."""
        self._deadline_callbacks.discard(end)

    async def idle(self, seconds: float) -> bool:
        """Wait until no request runs; return False after `seconds`."""
        return await wait_for_event(self._idle, seconds)
