"""Listening sockets. The supervisor holds them, so that ports stay open while a child restarts."""

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

from loragate.cli.errors import CliError

_BACKLOG = 2048
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


@dataclass(frozen=True)
class PortSetting:
    """The names of a port's option and variable, for error messages."""

    option: str
    variable: str


REST = PortSetting("--port", "LORAGATE_PORT")
GRPC = PortSetting("--grpc-port", "LORAGATE_GRPC_PORT")
PANEL = PortSetting("--panel-port", "LORAGATE_PANEL_PORT")


def listen(host: str, port: int, setting: PortSetting = REST) -> socket.socket:
    """Return a listening TCP socket; port 0 picks a free one. Raise CliError with the name of the setting.

    The socket listens immediately: a second server with SO_REUSEADDR could take a port that is only bound.
    """
    listener = _bound(host, port, socket.SO_REUSEADDR, setting)
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CliError(_why(host, port, error, setting)) from None
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """Return a bound socket that reserves a port for several gRPC servers to share; port 0 picks a free one.

    Raise CliError with the name of the setting. The port is first opened exclusively: with SO_REUSEPORT alone, a
    second server could silently take half of another one's calls.
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
        raise CliError(
            f"the host {host} (--host or LORAGATE_HOST) is not an address of this machine: {error.strerror}"
        ) from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise CliError(_why(host, port, error, setting)) from None
    return bound


def url_of(listener: socket.socket, certificate: Path | None = None) -> str:
    """Return the URL at which a client on this machine reaches the listener, which has TLS if it has a certificate."""
    return f"{'http' if certificate is None else 'https'}://{target_of(listener)}"


def target_of(bound: socket.socket) -> str:
    """Return the same address as a gRPC target."""
    host, port = bound.getsockname()[:2]
    return _joined(_ANY.get(host, host), port)


def address_of(bound: socket.socket) -> str:
    """Return the address on which a gRPC server listens to share the port."""
    return _joined(*bound.getsockname()[:2])


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(host: str, port: int, error: OSError, setting: PortSetting) -> str:
    named = f"{setting.option} or {setting.variable}"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another one with {named}"
    if error.errno == errno.EACCES:
        return f"port {port} ({named}) is not permitted for this user: choose one above 1023"
    return f"cannot listen on {host} port {port} (--host, {setting.option}): {error.strerror}"
