"""Responses that stream an archive of known size, which is computed while the client reads it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.lifecycle import Lifecycle


class Archive(Protocol):
    """The archive's size in bytes, and its parts."""

    @property
    def size(self) -> int: ...

    @property
    def parts(self) -> AsyncIterator[bytes]: ...


class ArchiveStream(Response):
    """Opens the archive, then sends it. The archive is closed with the response, also when the client disconnects.

    An error before the first byte is an ordinary HTTP error; a later one cuts the connection short of content-length.
    """

    media_type = "application/x-tar"

    def __init__(
        self, source: AbstractAsyncContextManager[Archive], filename: str, lifecycle: Lifecycle, stall_seconds: float
    ) -> None:
        super().__init__(headers={"content-disposition": f'attachment; filename="{filename}"'})
        self._source = source
        self._lifecycle = lifecycle
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await supervise(self._pump(send), receive, self._lifecycle)

    async def _pump(self, send: Send) -> None:
        async with self._source as archive:
            self.headers["content-length"] = str(archive.size)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for part in archive.parts:
                await self._body(send, part, more=True)
            await self._body(send, b"", more=False)

    async def _body(self, send: Send, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ClientDisconnect from None
