"""The origins whose pages may send requests to the panel."""

from collections.abc import Mapping
from urllib.parse import urlsplit


class Origins:
    """Compares the `Origin` header with the panel's own origin: the requested host, or the public URL."""

    def __init__(self, public_url: str | None) -> None:
        self._public = None if public_url is None else _origin(public_url)

    @property
    def listed(self) -> list[str] | None:
        """Return the origins known beforehand; None means the origin of the requested host."""
        return None if self._public is None else [self._public]

    def own(self, scheme: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request was sent by one of the panel's own pages."""
        origin = headers.get("origin", "")
        return bool(origin) and origin in (f"{_http(scheme)}://{headers.get('host', '')}", self._public)

    def secure(self, scheme: str) -> bool:
        """Return whether browsers use only TLS."""
        return (self._public or f"{_http(scheme)}://").startswith("https://")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _http(scheme: str) -> str:
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)
