"""Accepting connections from a listener that several workers share, so that each gets its share of the connections.

All workers wake up for a new connection, and the first one to run could accept a whole burst, whose requests would then
share one worker while the others idle. Each worker therefore waits for a moment before it accepts, longer the more
connections it has, and then accepts only a few, so that the next ones go to workers with fewer connections.
"""

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable

log = logging.getLogger(__name__)

_MAX_WAIT_MS = 5
_CONNECTIONS_PER_ACCEPT = 32  # for this many open connections, it accepts one more at once
_PAUSE_SECONDS = 1.0  # after running out of descriptors or memory, which is temporary


class Acceptor:
    """`connections` returns how many connections this worker has. Can be closed like an `asyncio.Server`."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Callable[[], int],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._connections = connections
        self._tls = tls
        self._next: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        listener.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Stop accepting. The listener stays open."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            if self._next is not None:
                self._next.cancel()

    async def wait_closed(self) -> None:
        """Wait until all accepted connections have their protocol."""
        await asyncio.gather(*self._opening)

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._wait_for_others)

    def _wait_for_others(self) -> None:
        self._loop.remove_reader(self._listener)
        pause = min(_MAX_WAIT_MS, math.isqrt(self._load)) / 1000
        self._next = self._loop.call_later(pause, self._accept)

    @property
    def _load(self) -> int:
        return self._connections() + len(self._opening)

    def _accept(self) -> None:
        try:
            for _ in range(1 + self._load // _CONNECTIONS_PER_ACCEPT):
                self._open(self._listener.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # another worker was faster, or the client has left
        except OSError as error:
            log.error("cannot accept connections: %s", error.strerror)
            self._next = self._loop.call_later(_PAUSE_SECONDS, self._watch)
            return
        self._watch()

    def _open(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._serve(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
        except OSError as error:  # the client has left
            log.debug("a connection was closed before it was set up: %s", error.strerror)
            connection.close()
