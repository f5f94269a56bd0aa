"""A server that stands in for a hub and its CDN: answers what it is told, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Reply:
    """`stalls_after` so many bytes of the body nothing more comes, and the connection stays open."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stalls_after: int | None = None
    length: int | None = None  # as announced


@dataclass(frozen=True)
class Asked:
    """One request, its headers in lower case."""

    target: str
    headers: dict[str, str]


class StandInHub:
    """`replies` by path and query; what is not there is 404."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[Asked] = []
        self.waiting = asyncio.Event()  # somebody waits for bytes that do not come
        self.resume = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def offer(self, repository: str, folder: Path) -> None:
        """The two files of an adapter, at the commit."""
        for file in folder.iterdir():
            self.replies[f"/{repository}/resolve/{COMMIT}/{file.name}"] = Reply(file.read_bytes())

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            target = first.split()[1]
            self.asked.append(
                Asked(target, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)})
            )
            await self._send(writer, self.replies.get(target, Reply(status=404)))
        writer.close()

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        length = len(reply.body) if reply.length is None else reply.length
        headers = {"content-length": str(length), "connection": "close", **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode())
        writer.write(reply.body[: reply.stalls_after])
        await writer.drain()
        if reply.stalls_after is not None:
            self.waiting.set()
            await self.resume.wait()
            writer.write(reply.body[reply.stalls_after :])
            await writer.drain()


@asynccontextmanager
async def stand_in_hub(context: ssl.SSLContext | None = None) -> AsyncIterator[StandInHub]:
    hub = StandInHub()
    server = await asyncio.start_server(hub.answer, "127.0.0.1", 0, ssl=context)
    hub.port = server.sockets[0].getsockname()[1]
    try:
        yield hub
    finally:
        hub.resume.set()
        server.close()
        await server.wait_closed()
