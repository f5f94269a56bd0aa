"""The ports that the supervisor holds, so that they survive a child's restart."""

import errno
import socket
from dataclasses import dataclass

from loragate.cli.refusal import Refusal

_BACKLOG = 2048
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


@dataclass(frozen=True)
class PortSetting:
    """How a port is named to whoever starts a server."""

    option: str
    variable: str


REST = PortSetting("--port", "LORAGATE_PORT")
GRPC = PortSetting("--grpc-port", "LORAGATE_GRPC_PORT")
PANEL = PortSetting("--panel-port", "LORAGATE_PANEL_PORT")


def listen(host: str, port: int, setting: PortSetting = REST) -> socket.socket:
    """A listening TCP socket; port 0 picks a free one. Raises Refusal that names the setting.

    It listens from the start: a second server with SO_REUSEADDR could still take a port that is only bound.
    """
    listener = _bound(host, port, socket.SO_REUSEADDR, setting)
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Refusal(_why(host, port, error, setting)) from None
    return listener


def hold(host: str, port: int) -> socket.socket:
    """A bound socket that keeps a port for gRPC servers, all of which listen on it; port 0 picks a free one.

    Raises Refusal that names the setting. The port is tried alone first: with SO_REUSEPORT a second server could take
    half of another one's calls in silence.
    """
    with listen(host, port, GRPC) as alone:
        port = alone.getsockname()[1]
    return _bound(host, port, socket.SO_REUSEPORT, GRPC)


def _bound(host: str, port: int, option: int, setting: PortSetting) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise Refusal(f"the host {host} (--host or LORAGATE_HOST) is not an address here: {error.strerror}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise Refusal(_why(host, port, error, setting)) from None
    return bound


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the listener."""
    return f"http://{target_of(listener)}"


def target_of(bound: socket.socket) -> str:
    """The same as gRPC's clients name it."""
    host, port = bound.getsockname()[:2]
    return _joined(_ANY.get(host, host), port)


def address_of(bound: socket.socket) -> str:
    """Where a gRPC server listens to share the port."""
    return _joined(*bound.getsockname()[:2])


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(host: str, port: int, error: OSError, setting: PortSetting) -> str:
    named = f"{setting.option} or {setting.variable}"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with {named}"
    if error.errno == errno.EACCES:
        return f"port {port} ({named}) may not be used by this user; choose one above 1023"
    return f"cannot listen on {host} port {port} (--host, {setting.option}): {error.strerror}"
