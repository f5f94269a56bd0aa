"""A fake hub with its CDN: sends scripted responses and records its requests."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Reply:
    """A scripted response. After `stalls_after` bytes of the body nothing more is sent, and the
    connection stays open.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stalls_after: int | None = None
    length: int | None = None  # as announced


@dataclass(frozen=True)
class HubRequest:
    """A received request, its headers in lower case."""

    target: str
    headers: dict[str, str]


class FakeHub:
    """A hub with `replies` by path and query; all others are 404."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[HubRequest] = []
        self.waiting = asyncio.Event()  # a client waits for bytes that do not arrive
        self.resume = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def offer(self, repository: str, folder: Path) -> None:
        """Serve the files of a folder at the commit, and what the hub's own client asks for first: their names, which
        HEAD as well as GET returns with the commit and a digest."""
        files = sorted(folder.iterdir())
        for file in files:
            body = file.read_bytes()
            headers = {"x-repo-commit": COMMIT, "etag": f'"{hashlib.sha256(body).hexdigest()}"'}
            self.replies[f"/{repository}/resolve/{COMMIT}/{file.name}"] = Reply(body, headers=headers)
        listed = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": file.name} for file in files]}
        information = Reply(json.dumps(listed).encode(), headers={"content-type": "application/json"})
        for revision in ("", "/revision/main", f"/revision/{COMMIT}"):
            self.replies[f"/api/models/{repository}{revision}"] = information
        tree = [{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": COMMIT} for file in files]
        page = f"/api/models/{repository}/tree/{COMMIT}?recursive=true&expand=false"
        self.replies[page] = Reply(json.dumps(tree).encode(), headers={"content-type": "application/json"})

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            method, target, _ = first.split()
            self.asked.append(
                HubRequest(target, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)})
            )
            await self._send(writer, self.replies.get(target, Reply(status=404)), with_body=method != "HEAD")
        writer.close()

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply, *, with_body: bool) -> None:
        length = len(reply.body) if reply.length is None else reply.length
        headers = {"content-length": str(length), "connection": "close", **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode())
        if not with_body:
            return
        writer.write(reply.body[: reply.stalls_after])
        await writer.drain()
        if reply.stalls_after is not None:
            self.waiting.set()
            await self.resume.wait()
            writer.write(reply.body[reply.stalls_after :])
            await writer.drain()


@asynccontextmanager
async def fake_hub(context: ssl.SSLContext | None = None) -> AsyncIterator[FakeHub]:
    hub = FakeHub()
    server = await asyncio.start_server(hub.answer, "127.0.0.1", 0, ssl=context)
    hub.port = server.sockets[0].getsockname()[1]
    try:
        yield hub
    finally:
        hub.resume.set()
        server.close()
        await server.wait_closed()
