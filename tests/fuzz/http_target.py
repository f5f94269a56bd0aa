"""HTTP framing: the bytes of one connection, in any pieces."""

import asyncio
import logging
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from loragate.gateway.connections.guarded_protocol import protocol

# Each cancelled response is logged. Pytest keeps all records, and over many inputs the garbage collector takes seconds.
logging.getLogger("uvicorn.error").disabled = True


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_protocol(self, protocol: Any) -> None:
        raise AssertionError("no other protocol may take over the connection")


Seen = list[tuple[str, bytes, list[tuple[bytes, bytes]], bytes]]
"""Requests as an application gets them: the method, the path as it was sent, headers and body."""


def run_http(raw: bytes) -> None:
    """Send bytes to the HTTP protocol at once, in two pieces and one by one: the application gets the same requests."""
    whole, status = asyncio.run(_requests(raw, len(raw) or 1))
    assert len(whole) <= 1, "a request reached the application during another"
    for method, _, headers, _ in whole:
        names = [name for name, _ in headers]
        assert names.count(b"host") <= 1
        assert not (b"content-length" in names and b"transfer-encoding" in names), "two lengths"
        assert names.count(b"content-length") <= 1, "two lengths"
        assert method.isprintable()
    assert whole or status in (b"", b"400", b"413", b"431", b"501", b"505"), status
    for size in (max(1, len(raw) // 2), 1):
        assert asyncio.run(_requests(raw, size)) == (whole, status), f"in pieces of {size} bytes it is another request"


async def _requests(raw: bytes, size: int) -> tuple[Seen, bytes]:
    """Return the requests, and the status of the response that was sent without one."""
    seen: Seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        seen.append((scope["method"], scope["raw_path"], list(scope["headers"]), body))
        await asyncio.Event().wait()  # the response never ends, so any other request would come during it

    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none", interface="asgi3", server_header=False)
    connection = protocol(60.0)(config, ServerState(), {}, asyncio.get_running_loop())
    transport = _Transport()
    connection.connection_made(transport)
    for start in range(0, len(raw), size):
        if not transport.closed:
            connection.data_received(raw[start : start + size])
    for _ in range(5):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    for task in connection.tasks:
        task.cancel()
    await asyncio.gather(*connection.tasks, return_exceptions=True)
    return seen, bytes(transport.written[9:12])
