"""One file over HTTP, from an allowed host at a checked address, within bounds of size and pace.

The name is asked for once and the connection goes to the address that was checked, with the name in TLS and in the
Host header: an answer that changes between two questions (DNS rebinding) changes nothing. Redirects are followed by
hand, each checked like the first URL. Nothing of the environment is used: no proxies, no .netrc, no certificates.
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
from loragate.gateway.http.body_limits import BodyCounter, Pace
from loragate.gateway.imports.allow_list import Place, Places
from loragate.gateway.imports.public_addresses import addresses_of, is_public
from loragate.gateway.imports.source import ImportFailed

_MOST_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_PIECE = 256 << 10

log = logging.getLogger(__name__)

# They write whole URLs down, and headers; a redirect's query is a secret, and so is a token.
for _talkative in ("httpx", "httpcore"):
    logging.getLogger(_talkative).setLevel(logging.WARNING)

Resolver = Callable[[str, int], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Download:
    """An answer whose body has not been read. `size` is what it announces, `headers` are the first answer's."""

    size: int | None
    headers: httpx.Headers
    response: httpx.Response


class Fetcher:
    """Of one import. A `token` goes to `home` alone."""

    def __init__(
        self,
        places: Places,
        home: str,
        token: str | None,
        pace: Pace,
        resolve: Resolver = addresses_of,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._places = places
        self._home = places.of(home).origin
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
        """The answer to a GET. Raises ImportFailed."""
        async with AsyncExitStack() as stack:
            first: httpx.Headers | None = None
            for _ in range(_MOST_REDIRECTS + 1):
                place = self._places.of(url)
                response = await self._get(place)
                stack.push_async_callback(response.aclose)
                first = response.headers if first is None else first
                if not response.is_redirect:
                    yield Download(_size(response), first, response)
                    return
                url = urljoin(url, response.headers["location"])
            raise ImportFailed("too_many_redirects", "The source redirects without end.")

    async def read(self, download: Download, limit: int) -> AsyncIterator[bytes]:
        """The body. Raises ImportFailed when it is larger than `limit`, stalls, or breaks off."""
        counter = BodyCounter(limit, self._pace)
        pieces = download.response.aiter_raw(_PIECE)
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
            raise ImportFailed("source_unavailable", "The source broke off before the file's end.") from None

    async def _get(self, place: Place) -> httpx.Response:
        headers = {"host": place.authority, "accept-encoding": "identity", "user-agent": "loragate"}
        if self._token is not None and place.origin == self._home:
            headers["authorization"] = f"Bearer {self._token}"
        address = await self._address(place)
        request = self._http.build_request(
            "GET", place.at(address), headers=headers, extensions={"sni_hostname": place.host}
        )
        try:
            return await self._http.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.warning("an import cannot reach %s: %s", place.authority, type(error).__name__)
            raise ImportFailed("source_unavailable", f"{place.authority} cannot be reached.") from None

    async def _address(self, place: Place) -> str:
        """Raises ImportFailed unless all that the name leads to is public."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                addresses = await self._resolve(place.host, place.port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise ImportFailed("source_unavailable", f"{place.authority} cannot be found.")
        if not place.anywhere and not all(map(is_public, addresses)):
            raise ImportFailed("host_not_allowed", f"{place.authority} leads to an address that is not public.")
        return addresses[0]


def _size(response: httpx.Response) -> int | None:
    """What it announces. Raises ImportFailed for an answer that is packed."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ImportFailed("source_unavailable", "The source packs its files, which was not asked for.")
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
