"""The addresses of clients, which distinguish those that are not authenticated yet."""

from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

_IPV6_NETWORK = (1 << 128) - (1 << 64)  # a client of IPv6 has a /64, in which it can choose any address


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
