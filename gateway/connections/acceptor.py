"""Accepting connections: from a listener that several workers share, and with certificates that change.

All workers that share a listener wake up for a new connection, and the first one to run could accept a whole burst,
whose requests would then share one worker while the others idle. Each worker therefore waits for a moment before it
accepts, longer the more connections it has, and then accepts only a few, so that the next ones go to workers with fewer
connections.

With TLS, each connection gets the certificate of the moment. Clients that do not finish the handshake are bounded here,
because the protocol, with its own limits, sees a connection only afterwards.
"""

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import cast

import uvicorn

from loragate.engine.server_tls import TlsFiles, reloaded_context
from loragate.gateway.connections.connection_limit import ConnectionLimit
from loragate.gateway.connections.guarded_protocol import GuardedProtocol

log = logging.getLogger(__name__)

_MAX_WAIT_MS = 5
_CONNECTIONS_PER_ACCEPT = 32  # for this many open connections, it accepts one more at once
_PAUSE_SECONDS = 1.0  # after running out of descriptors or memory, which is temporary
_HANDSHAKE_SECONDS = 10.0
_MAX_HANDSHAKES = 1024


class Acceptor:
    """`connections` returns how many connections this worker has, `tls` the context of a new one. Can be closed like an
    `asyncio.Server`."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Callable[[], int],
        tls: Callable[[], ssl.SSLContext] | None = None,
        *,
        shares: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._connections = connections
        self._tls = tls
        self._shares = shares
        self._handshakes = ConnectionLimit(_MAX_HANDSHAKES)
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
        pause = min(_MAX_WAIT_MS, math.isqrt(self._load)) / 1000 if self._shares else 0
        self._next = self._loop.call_later(pause, self._accept)

    @property
    def _load(self) -> int:
        return self._connections() + len(self._opening)

    def _accept(self) -> None:
        try:
            for _ in range(1 + self._load // _CONNECTIONS_PER_ACCEPT):
                self._open(*self._listener.accept())
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # another worker was faster, or the client has left
        except OSError as error:
            log.error("cannot accept connections: %s", error.strerror)
            self._next = self._loop.call_later(_PAUSE_SECONDS, self._watch)
            return
        self._watch()

    def _open(self, connection: socket.socket, address: object) -> None:
        task = self._loop.create_task(self._serve(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        if self._tls is not None:
            handshake = _Handshake(task)
            peer = str(address[0]) if isinstance(address, tuple) else ""
            self._handshakes.open(handshake, peer)
            task.add_done_callback(lambda _: self._handshakes.end(handshake))

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._protocol, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._protocol, connection, ssl=self._tls(), ssl_handshake_timeout=_HANDSHAKE_SECONDS
                )
        except OSError as error:  # the client has left, or its certificate is not accepted
            log.debug("a connection was closed before it was set up: %s", error.strerror)
            connection.close()
        except asyncio.CancelledError:
            connection.close()


class _Handshake:
    """A client that has not finished the TLS handshake."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def make_room(self) -> None:
        """Close the connection in favour of a newer one."""
        self._task.cancel()


class AcceptingServer(uvicorn.Server):
    """Accepts with an `Acceptor` where uvicorn cannot: on a listener that is shared, or with certificates that
    change."""

    def __init__(self, settings: uvicorn.Config, tls: TlsFiles | None = None, *, shares: bool = False) -> None:
        super().__init__(settings)
        self._tls = tls
        self._shares = shares

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept. Raise OSError or ValueError for certificates that cannot be used."""
        tls = None if self._tls is None else reloaded_context(self._tls)
        if tls is None and not self._shares:
            await super().startup(sockets)
            return
        await super().startup([])
        for sock in sockets or ():
            acceptor = Acceptor(sock, self._protocol, self._connections, tls, shares=self._shares)
            self.servers.append(acceptor)  # type: ignore[arg-type]  # uvicorn only closes it

    def _connections(self) -> int:
        return len(self.server_state.connections)

    def _protocol(self) -> GuardedProtocol:
        kind = cast(type[GuardedProtocol], self.config.http_protocol_class)
        return kind(self.config, self.server_state, self.lifespan.state)
