"""Which URLs may be fetched: a host of the allow-list, by a grammar so narrow that no two readers differ about it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.gateway.imports.source import ImportFailed

# No userinfo, no backslash, no blank, no escape in the host, nothing but ASCII.
_URL = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?(/[!-\[\]-~]*)?")
_PORTS = {"https": 443, "http": 80}
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class Place:
    """A checked URL. `anywhere`: the operator wrote its origin out, so that its address is not looked at."""

    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query
    anywhere: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: str) -> str:
        """The same URL with an address in place of the name."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.target}"


class Places:
    """The allow-list."""

    def __init__(self, hosts: Iterable[str]) -> None:
        entries = frozenset(hosts)
        self._origins = frozenset(_parsed(entry).origin for entry in entries if "://" in entry)
        self._names = frozenset(entry for entry in entries if "://" not in entry and not entry.startswith("*."))
        self._suffixes = tuple(entry.removeprefix("*") for entry in entries if entry.startswith("*."))

    def of(self, url: str) -> Place:
        """Raises ImportFailed for every URL that is not allowed."""
        place = _parsed(url)
        if place.origin in self._origins:
            return Place(*place.origin, place.target, anywhere=True)
        below = place.host.endswith(self._suffixes or ("\0",)) and "" not in place.host.split(".")
        named = place.host in self._names or below
        if not named or place.origin != ("https", place.host, 443):
            raise ImportFailed(
                "host_not_allowed", f"Adapters are not imported from {place.scheme}://{place.authority}."
            )
        return place


def _parsed(url: str) -> Place:
    match = _URL.fullmatch(url) if len(url) <= _LONGEST else None
    if match is None:
        raise ImportFailed("host_not_allowed", "The source redirects to what is no plain https URL.")
    scheme, host, port, target = match.groups()
    return Place(scheme, host.strip("[]").lower(), int(port or _PORTS[scheme]), target or "/", anywhere=False)
