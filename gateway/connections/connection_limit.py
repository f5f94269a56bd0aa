"""A bound on a process's connections, whose clients have proved nothing yet.

At the bound, a new connection closes one that waits for a request: its own client's oldest, so that a client that opens
any number of connections closes its own, else the oldest of all. Clients behind a reverse proxy have one address; for
them, too, the oldest makes room. Connections that serve requests are never closed.
"""

import resource
from collections import OrderedDict
from typing import Protocol

from loragate.gateway.connections.peers import network_of

_SPARE_FILES = 256  # for the database, the engine, uploads and logs
_MAX_GRPC_CONNECTIONS = 1024


class Connection(Protocol):
    """A connection, as the limit needs it."""

    def make_room(self) -> None:
        """Close, because the connection waits for a request and a newer one needs its place."""
        ...


class ConnectionLimit:
    """One per process."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = min(max_connections, max(1, _allowed_files() - max_grpc_connections() - _SPARE_FILES))
        self._networks: dict[Connection, str] = {}
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._waiting_of: dict[str, OrderedDict[Connection, None]] = {}

    def open(self, connection: Connection, address: str) -> bool:
        """Count a connection, which waits for a request. Return False if there is no room for it."""
        network = network_of(address)
        if len(self._networks) >= self._max_connections and not self._make_room(network):
            return False
        self._networks[connection] = network
        self.wait(connection)
        return True

    def wait(self, connection: Connection) -> None:
        """Record that the connection waits for a request from now on."""
        network = self._networks.get(connection)
        if network is not None:
            self._waiting[connection] = None
            self._waiting_of.setdefault(network, OrderedDict())[connection] = None

    def serve(self, connection: Connection) -> None:
        """Record that the connection has a request."""
        if connection in self._waiting:
            del self._waiting[connection]
            network = self._networks[connection]
            waiting = self._waiting_of[network]
            del waiting[connection]
            if not waiting:
                del self._waiting_of[network]

    def end(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.serve(connection)
        self._networks.pop(connection, None)

    def _make_room(self, network: str) -> bool:
        waiting = self._waiting_of.get(network, self._waiting)
        if not waiting:
            return False
        oldest = next(iter(waiting))
        self.end(oldest)
        oldest.make_room()
        return True


def max_grpc_connections() -> int:
    """Return the number of connections that the gRPC port of a process may have."""
    return min(_MAX_GRPC_CONNECTIONS, max(1, _allowed_files() // 8))


def _allowed_files() -> int:
    """Raise the number of files that this process may open to its maximum, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
