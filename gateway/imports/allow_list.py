"""The allow-list of URLs that may be fetched, with a URL grammar so narrow that all parsers agree about it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.gateway.imports.source import ImportFailed

# No userinfo, no backslash, no space, no escape in the host, only ASCII.
_URL = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?(/[!-\[\]-~]*)?")
_PORTS = {"https": 443, "http": 80}
_MAX_LENGTH = 8192


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """A checked URL. `any_address`: the operator listed its full origin, so its address may be private."""

    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query
    any_address: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def with_address(self, address: str) -> str:
        """Return the same URL with an address in place of the name."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.target}"


class AllowList:
    """The hosts from which adapters may be fetched."""

    def __init__(self, hosts: Iterable[str]) -> None:
        entries = frozenset(hosts)
        self._origins = frozenset(_parsed(entry).origin for entry in entries if "://" in entry)
        self._names = frozenset(entry for entry in entries if "://" not in entry and not entry.startswith("*."))
        self._suffixes = tuple(entry.removeprefix("*") for entry in entries if entry.startswith("*."))

    def check(self, url: str) -> SourceUrl:
        """Return the parsed URL. Raise ImportFailed for a URL that is not allowed."""
        source = _parsed(url)
        if source.origin in self._origins:
            return SourceUrl(*source.origin, source.target, any_address=True)
        below = source.host.endswith(self._suffixes or ("\0",)) and "" not in source.host.split(".")
        listed = source.host in self._names or below
        if not listed or source.origin != ("https", source.host, 443):
            raise ImportFailed(
                "host_not_allowed", f"Adapters are not imported from {source.scheme}://{source.authority}."
            )
        return source


def _parsed(url: str) -> SourceUrl:
    match = _URL.fullmatch(url) if len(url) <= _MAX_LENGTH else None
    if match is None:
        raise ImportFailed("host_not_allowed", "The source redirects to something that is not a plain https URL.")
    scheme, host, port, target = match.groups()
    return SourceUrl(scheme, host.strip("[]").lower(), int(port or _PORTS[scheme]), target or "/", any_address=False)
