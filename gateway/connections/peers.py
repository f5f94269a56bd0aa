"""The addresses of clients, which distinguish those that are not authenticated yet."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote

_IPV6_NETWORK = (1 << 128) - (1 << 64)  # a client of IPv6 has a /64, in which it can choose any address
_MAX_PROXIES = 16  # one behind the other
_WITH_PORT = re.compile(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([0-9.]+):\d+")


def address_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer (`ipv4:192.0.2.1:5000`); "" for a Unix socket."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")


def network_of(address: str) -> str:
    """Return the network that one client can have: an IPv4 address, or 64 bits of an IPv6 address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) & _IPV6_NETWORK)}/64"


class TrustedProxies:
    """The proxies that say whose request they forward, in `X-Forwarded-For`. Each appends the address that it saw."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(map(ip_network, networks))

    def client_of(self, peer: str, forwarded: Iterable[str]) -> str:
        """Return the address of the client: `peer`, or for a trusted proxy the last address in its headers that is not
        another trusted proxy's. What stands before it was written by the client."""
        address = _parsed(peer) if self._networks else None
        if address is None or not self._trusts(address):
            return peer
        for entry in reversed(",".join(forwarded).rsplit(",", _MAX_PROXIES)[-_MAX_PROXIES:]):
            before = _parsed(entry.strip())
            if before is None:
                break
            address = before
            if not self._trusts(address):
                break
        return str(address)

    def _trusts(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


NO_PROXIES = TrustedProxies(())


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a text, where a port may follow it; None if there is none."""
    with_port = _WITH_PORT.fullmatch(text)
    try:
        parsed = ip_address(text if with_port is None else with_port[1] or with_port[2])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
