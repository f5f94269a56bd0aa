"""Ports of this machine, for servers that cannot be given a socket."""

import socket


def free_port() -> int:
    """Return a port on which nothing listens. Another program may take it before the caller does."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def accepts(port: int) -> bool:
    """Return whether something listens on the port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
