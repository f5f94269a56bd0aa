"""HTTP written by hand, for input that no client would send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import orjson

from tests.gateway.running_gateway import Gateway


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        """Return the code of its error."""
        found: str | None = orjson.loads(self.body)["error"]["code"]
        return found


class Connection:
    """One socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self) -> Answer:
        """Return the next complete response."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Answer(int(first.split()[1]), headers, await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body

    async def rest(self) -> bytes:
        """Return what arrives until the server closes or resets the connection."""
        got = b""
        with suppress(ConnectionError):
            while piece := await self.reader.read(1 << 16):
                got += piece
        return got


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Connection]:
    host, port = gateway.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(gateway: Gateway, *pieces: bytes) -> Answer:
    """Return the first response to these bytes."""
    async with connected(gateway) as connection:
        await connection.send(*pieces)
        return await connection.answer()


def head(gateway: Gateway, path: str = "/v1/completions", *, key: str | None = None, method: str = "POST") -> bytes:
    """Return the head of a request with a key and JSON, up to the headers that give its length."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key or gateway.key}\r\n"
        "Content-Type: application/json\r\n"
    ).encode()


def post(gateway: Gateway, body: object, path: str = "/v1/completions") -> bytes:
    """Return a complete request. Bytes are sent as they are."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return head(gateway, path) + b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw)
