"""The ports that the supervisor holds, so that they survive a child's restart."""

import errno
import socket

from loragate.cli.refusal import Refusal

_BACKLOG = 2048
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 picks a free one. Raises Refusal that names the setting.

    It listens from the start: a second server with SO_REUSEADDR could still take a port that is only bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise Refusal(f"the host {host} (--host or LORAGATE_HOST) is not an address here: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Refusal(_why(host, port, error)) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    host = _ANY.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with --port or LORAGATE_PORT"
    if error.errno == errno.EACCES:
        return f"port {port} (--port or LORAGATE_PORT) may not be used by this user; choose one above 1023"
    return f"cannot listen on {host} port {port} (--host, --port): {error.strerror}"
