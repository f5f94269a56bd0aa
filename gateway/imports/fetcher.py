"""Fetching of files over HTTP, from an allowed host at a checked address, within limits of size and time.

A name is resolved once, and the connection goes to the address that was checked, with the name in TLS and in the Host
header, so a DNS response that changes between two queries (DNS rebinding) has no effect. Each redirect is checked like
the first URL. Nothing of the environment is used: no proxies, no .netrc, no certificates.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx

from loragate.gateway.errors import PayloadTooLarge
from loragate.gateway.http.bodies import BodyCounter, Pace
from loragate.gateway.imports.allow_list import AllowList, SourceUrl
from loragate.gateway.imports.public_addresses import is_public, resolve_addresses
from loragate.gateway.imports.source import ImportFailed

_MAX_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_PIECE_BYTES = 256 << 10

log = logging.getLogger(__name__)

# They log whole URLs and headers, but the query of a redirect and a token are secrets.
for _library in ("httpx", "httpcore"):
    logging.getLogger(_library).setLevel(logging.WARNING)

Resolver = Callable[[str, int], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Download:
    """A response with an unread body. `size` is its `content-length`, `headers` are those of the first response."""

    size: int | None
    headers: httpx.Headers
    response: httpx.Response


class Fetcher:
    """Fetches the files of one import. A `token` is sent to `home` only."""

    def __init__(
        self,
        allow_list: AllowList,
        home: str,
        *,
        token: str | None,
        pace: Pace,
        resolve: Resolver = resolve_addresses,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._allow_list = allow_list
        self._home = allow_list.check(home).origin
        self._token = token
        self._pace = pace
        self._resolve = resolve
        timeout = httpx.Timeout(pace.stall_seconds, connect=_CONNECT_SECONDS)
        self._http = httpx.AsyncClient(verify=verify, trust_env=False, follow_redirects=False, timeout=timeout)

    async def __aenter__(self) -> "Fetcher":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[Download]:
        """Yield the response to a GET. Raise ImportFailed."""
        async with AsyncExitStack() as stack:
            first: httpx.Headers | None = None
            for _ in range(_MAX_REDIRECTS + 1):
                response = await self._get(self._allow_list.check(url))
                stack.push_async_callback(response.aclose)
                first = response.headers if first is None else first
                if not response.is_redirect:
                    yield Download(_size(response), first, response)
                    return
                url = urljoin(url, response.headers["location"])
            raise ImportFailed("too_many_redirects", "The source redirects too often.")

    async def read(self, download: Download, limit: int) -> AsyncIterator[bytes]:
        """Yield the body. Raise ImportFailed if it is larger than `limit`, stalls, or is incomplete."""
        counter = BodyCounter(limit, self._pace)
        pieces = download.response.aiter_raw(_PIECE_BYTES)
        try:
            counter.check_size(download.size or 0)
            while True:
                async with asyncio.timeout(counter.timeout):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                counter.add(len(piece))
                yield piece
        except PayloadTooLarge:
            raise ImportFailed("import_too_large", f"The source has a file of more than {limit} bytes.") from None
        except (TimeoutError, httpx.TimeoutException):
            raise ImportFailed("import_stalled", "The source sends too slowly.") from None
        except httpx.HTTPError:
            raise ImportFailed(
                "source_unavailable", "The source closed the connection before the end of a file."
            ) from None

    async def _get(self, url: SourceUrl) -> httpx.Response:
        headers = {"host": url.authority, "accept-encoding": "identity", "user-agent": "loragate"}
        if self._token is not None and url.origin == self._home:
            headers["authorization"] = f"Bearer {self._token}"
        address = await self._address(url)
        request = self._http.build_request(
            "GET", url.with_address(address), headers=headers, extensions={"sni_hostname": url.host}
        )
        try:
            return await self._http.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.warning("an import cannot reach %s: %s", url.authority, type(error).__name__)
            raise ImportFailed("source_unavailable", f"{url.authority} cannot be reached.") from None

    async def _address(self, url: SourceUrl) -> str:
        """Resolve the name. Raise ImportFailed unless all of its addresses are public."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                addresses = await self._resolve(url.host, url.port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise ImportFailed("source_unavailable", f"{url.authority} cannot be resolved.")
        if not url.any_address and not all(map(is_public, addresses)):
            raise ImportFailed("host_not_allowed", f"{url.authority} resolves to an address that is not public.")
        return addresses[0]


def _size(response: httpx.Response) -> int | None:
    """Return the announced size. Raise ImportFailed for a compressed response."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ImportFailed("source_unavailable", "The source sends compressed files, which were not requested.")
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
