"""Which pages may speak to the panel: its own."""

from collections.abc import Mapping
from urllib.parse import urlsplit


class Origins:
    """A browser names the page that asks in `Origin`: the panel's own, by the name that it is asked by, or the one that
    it is known by."""

    def __init__(self, public_url: str | None) -> None:
        self._public = None if public_url is None else _origin(public_url)

    @property
    def listed(self) -> list[str] | None:
        """Those that are known beforehand; None: whichever has the host that was asked."""
        return None if self._public is None else [self._public]

    def own(self, scheme: str, headers: Mapping[str, str]) -> bool:
        """Whether a request that changes something comes from one of our pages."""
        origin = headers.get("origin", "")
        return bool(origin) and origin in (f"{_http(scheme)}://{headers.get('host', '')}", self._public)

    def secure(self, scheme: str) -> bool:
        """Whether browsers reach us by TLS alone."""
        return (self._public or f"{_http(scheme)}://").startswith("https://")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _http(scheme: str) -> str:
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)
