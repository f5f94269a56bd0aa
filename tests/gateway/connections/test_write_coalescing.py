"""Writes of one event loop iteration are sent together, and nothing is lost."""

import asyncio
from typing import cast

from loragate.gateway.connections.write_coalescing import CoalescingTransport


class Wire:
    """A transport that records the pieces sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> str:
        return f"its {name}"


def corked() -> tuple[CoalescingTransport, Wire]:
    wire = Wire()
    return CoalescingTransport(cast(asyncio.Transport, wire), asyncio.get_running_loop()), wire


async def test_writes_of_one_iteration_are_one_piece() -> None:
    transport, wire = corked()
    for piece in (b"head ", b"body"):
        transport.write(piece)
    assert (wire.sent, transport.get_write_buffer_size()) == ([], 9)
    await asyncio.sleep(0)
    assert (wire.sent, transport.get_write_buffer_size()) == ([b"head body"], 0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert wire.sent == [b"head body", b"next"]


async def test_closing_sends_what_was_written() -> None:
    transport, wire = corked()
    transport.write(b"last words")
    transport.close()
    assert (wire.sent, wire.closed) == ([b"last words"], True)
    await asyncio.sleep(0)
    assert wire.sent == [b"last words"]


async def test_aborting_sends_nothing() -> None:
    transport, wire = corked()
    transport.write(b"never")
    transport.abort()
    await asyncio.sleep(0)
    assert (wire.sent, wire.aborted) == ([], True)


async def test_all_else_is_the_transports() -> None:
    transport, _ = corked()
    assert transport.get_extra_info("peername") == "its peername"
