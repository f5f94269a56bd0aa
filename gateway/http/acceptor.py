"""Accepting from a listener that several workers share, so that each gets its part of the connections.

All of them wake up for a new connection, and whoever runs first could take a whole burst: its requests would share one
worker while the others idle. So a worker steps aside for a moment before it accepts, the longer the more connections it
has, and then takes few: what comes next goes to whoever has less to do.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

_LONGEST_MS = 5
_SHARE = 32  # of its connections, for each that it takes at once beyond the first
_PAUSE_SECONDS = 1.0  # out of descriptors or memory: both pass


class Acceptor:
    """`connections` says how many this worker has. In the place of an `asyncio.Server` for whoever closes it."""

    def __init__(
        self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], connections: Callable[[], int]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._connections = connections
        self._next: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        listener.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Accept no more. The listener stays open."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            if self._next is not None:
                self._next.cancel()

    async def wait_closed(self) -> None:
        """What was accepted has its protocol."""
        await asyncio.gather(*self._opening)

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._step_aside)

    def _step_aside(self) -> None:
        self._loop.remove_reader(self._listener)
        pause = min(_LONGEST_MS, math.isqrt(self._load)) / 1000
        self._next = self._loop.call_later(pause, self._accept)

    @property
    def _load(self) -> int:
        return self._connections() + len(self._opening)

    def _accept(self) -> None:
        try:
            for _ in range(1 + self._load // _SHARE):
                self._open(self._listener.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # others were faster, or the client has left
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
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError as error:  # the client has left
            log.debug("a connection ended before it began: %s", error.strerror)
            connection.close()
