"""The panel's connections: the gateway's HTTP protocol, and a bound on their number."""

import resource
from typing import Any

from loragate.gateway.http.guarded_protocol import GuardedProtocol

_SPARE_FILES = 200  # for libraries, logs and connections to the gateway


class BoundedProtocol(GuardedProtocol):
    """Above `max_connections`, closes the connection that has waited longest for a request, else the one whose client
    has not read its response for longest.

    A client that opens connections and sends nothing therefore closes its own. Only while all connections serve
    requests or pages is a new one closed at once.
    """

    max_connections = 1000

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._least_useful().transport.abort()

    def _least_useful(self) -> "BoundedProtocol":
        """Return an open connection; this new one if no other can be spared."""
        spare: dict[BoundedProtocol, tuple[int, float]] = {}
        for each in self.connections:
            if not isinstance(each, BoundedProtocol) or each.transport.is_closing():
                continue
            if each is self:
                spare[each] = (2, 0.0)
            elif each._head_deadline is not None:
                spare[each] = (0, each._head_deadline)
            elif each._unread_since is not None:
                spare[each] = (1, each._unread_since[0])
        return min(spare, key=lambda each: spare[each])


def bounded_protocol(stall_seconds: float, max_connections: int) -> type[BoundedProtocol]:
    """Return the protocol class with these limits; fewer connections where the process may open fewer files."""
    bound = min(max_connections, max(1, _allowed_files() - _SPARE_FILES))
    return type("PanelProtocol", (BoundedProtocol,), {"stall_seconds": stall_seconds, "max_connections": bound})


def _allowed_files() -> int:
    """Raise the number of files that this process may open to the maximum, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
