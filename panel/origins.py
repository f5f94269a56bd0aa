"""The names under which browsers reach the panel, and the origins whose pages may send requests to it."""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit


class Origins:
    """Compares the `Host` header with the panel's names, and `Origin` with its own origin: the requested host, or the
    public URL.

    The names are those of the public URL, of this machine and those in `hosts`. An IP address is always accepted: no
    other site's name can stand for it.
    """

    def __init__(self, public_url: str | None, hosts: Iterable[str] = (), *, tls: bool = False) -> None:
        self._public = None if public_url is None else _origin(public_url)
        self._tls = tls
        named = {urlsplit(public_url).hostname or ""} if public_url else _names_of_this_machine()
        self._hosts = named | {host.lower() for host in hosts} | {"localhost"}

    @property
    def always_secure(self) -> bool:
        """Whether browsers cannot reach the panel without TLS."""
        return self._public.startswith("https://") if self._public else self._tls

    def names(self, headers: Mapping[str, str]) -> bool:
        """Return whether the requested host is one of the panel's."""
        host = _hostname(headers.get("host", ""))
        return host in self._hosts or _is_address(host)

    def own(self, scheme: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request was sent by one of the panel's own pages."""
        origin = headers.get("origin", "")
        return bool(origin) and origin in (f"{_http(scheme)}://{headers.get('host', '')}", self._public)

    def secure(self, scheme: str) -> bool:
        """Return whether browsers use only TLS."""
        return (self._public or f"{_http(scheme)}://").startswith("https://")


def _names_of_this_machine() -> set[str]:
    name = socket.gethostname().lower()
    return {name, f"{name}.local", socket.getfqdn().lower()}


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _http(scheme: str) -> str:
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)
