"""Coalescing of small writes to a connection."""

import asyncio
from typing import Any


class CoalescingTransport:
    """Sends in one piece what is written in one iteration of the event loop: a response's head and body, or several
    events of a stream. Each piece costs a system call, and wakes up the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def close(self) -> None:
        """Send what was written, then close."""
        self._send()
        if not self._transport.is_closing():  # asyncio's transport with TLS breaks at a second call
            self._transport.close()

    def abort(self) -> None:
        self._written.clear()
        self._transport.abort()

    def uncoalesced(self) -> asyncio.Transport:
        """Send what was written, and return the transport itself."""
        self._send()
        return self._transport

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._written))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written) if len(written) > 1 else written[0])
