"""Downloads through the panel: no faster than the browser reads, and closed with its connection."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from loragate.panel import transfers
from loragate.panel.api import Api

CHUNKS = 1000


class Upstream(httpx.AsyncByteStream):
    """The body of the gateway's response: chunks, and then perhaps a broken connection."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.taken = 0
        self.closed = asyncio.Event()
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(CHUNKS):
            self.taken += 1
            yield bytes(1 << 10)
        if self._breaks:
            raise httpx.ReadError("the connection was closed")

    async def aclose(self) -> None:
        self.closed.set()


class Browser:
    """A download: what was sent to it, no further than it reads; and its end."""

    def __init__(self, upstream: Upstream) -> None:
        api = Api("http://gateway", "lg-x-y")
        transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=upstream))
        api._http = httpx.AsyncClient(base_url="http://gateway", transport=transport)
        self.session = SimpleNamespace(api=api, downloads=0)
        self.reads = asyncio.Semaphore(0)
        self.leaves = asyncio.Event()
        self.received: list[Any] = []

    async def download(self, path: str) -> None:
        app = FastAPI()
        app.include_router(transfers.router)
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        await app(scope | {"state": {"session": self.session}}, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.received.append(message)
        if message["type"] == "http.response.body":
            await self.reads.acquire()


async def settled() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_nothing_is_read_ahead_and_a_browser_that_leaves_closes_the_download() -> None:
    upstream = Upstream()
    browser = Browser(upstream)
    download = asyncio.create_task(browser.download("/transfer/merged/poet/1"))
    for read in (1, 2):
        await settled()
        assert (upstream.taken, browser.session.downloads) == (read, 1)
        browser.reads.release()
    browser.leaves.set()
    await download
    assert upstream.closed.is_set()
    assert upstream.taken < CHUNKS
    assert browser.session.downloads == 0


async def test_a_download_that_the_gateway_cuts_is_not_completed(caplog: pytest.LogCaptureFixture) -> None:
    browser = Browser(Upstream(breaks=True))
    browser.reads = asyncio.Semaphore(CHUNKS + 1)
    await browser.download("/transfer/merged/poet/1")
    assert len(browser.received) == 1 + CHUNKS
    assert browser.received[-1]["more_body"] is True
    assert "ended early" in caplog.text
