"""HTTP/2 frames written by hand, for input that no gRPC client would send (RFC 9113, RFC 7541)."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.gateway.running_gateway import Gateway

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes = b""

    def __bytes__(self) -> bytes:
        return (
            struct.pack(">I", len(self.payload))[1:]
            + struct.pack(">BBI", self.kind, self.flags, self.stream)
            + self.payload
        )

    @property
    def error(self) -> int:
        """Return the error code of RST_STREAM or GOAWAY."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4])


def fields(gateway: Gateway, method: str, *more: tuple[str, str]) -> bytes:
    """Return a call's header block, without compression."""
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", f"Bearer {gateway.key}"),
        *more,
    ]
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *frames: Frame | bytes) -> None:
        """Send as much as the server accepts."""
        with suppress(ConnectionError):
            self._writer.write(b"".join(map(bytes, frames)))
            await self._writer.drain()

    async def frames(self) -> AsyncIterator[Frame]:
        """Return what the server sends until it closes the connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                yield Frame(kind, flags, stream, await self._reader.readexactly(int.from_bytes(head[:3])))

    async def until(self, *kinds: int) -> Frame | None:
        """Return the first frame of one of these kinds; None if the server closes the connection without one."""
        async for frame in self.frames():
            if frame.kind in kinds:
                return frame
        return None


@asynccontextmanager
async def connected(
    gateway: Gateway, start: bytes = PREFACE + bytes(Frame(SETTINGS, 0, 0))
) -> AsyncIterator[Connection]:
    host, _, port = gateway.grpc_target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(start)
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()
