"""Name resolution, and the check for public addresses."""

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052
_COMPATIBLE = ip_network("::/96")  # IPv4-compatible, RFC 4291
_NOT_PUBLIC = (  # which `ipaddress` calls global
    ip_network("192.0.0.0/24"),  # protocol assignments, RFC 6890
    ip_network("192.88.99.0/24"),  # relays of 6to4, RFC 7526
    ip_network("3fff::/20"),  # documentation, RFC 9637
    ip_network("fec0::/10"),  # site-local, RFC 3879
)


async def resolve_addresses(host: str, port: int) -> tuple[str, ...]:
    """Resolve a name to addresses in the system's order of preference. Raise OSError if there are none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: str) -> bool:
    """Return whether the address, and every address embedded in it, belongs to the public internet."""
    try:
        ip = ip_address(address)
    except ValueError:  # for example, an address with a zone
        return False
    return all(_is_public(each) for each in _unwrapped(ip))


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    listed = any(ip in network for network in _NOT_PUBLIC)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not listed


def _unwrapped(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield the address, or those embedded in it, to which translators and tunnels forward."""
    if isinstance(ip, IPv4Address):
        yield ip
        return
    low = IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ip.ipv4_mapped is not None:
        yield ip.ipv4_mapped
    elif ip in _NAT64 or (ip in _COMPATIBLE and int(ip) > 0xFFFF):
        yield low
    else:
        yield ip
        if ip.sixtofour is not None:
            yield ip.sixtofour
        if ip.teredo is not None:
            yield from ip.teredo
