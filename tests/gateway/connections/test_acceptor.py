"""Workers that share a listener, here in one loop: each accepts its share, and the one with the fewest connections the
most.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from loragate.gateway.connections.acceptor import Acceptor


class Connection(asyncio.Protocol):
    def __init__(self, open_: set["Connection"]) -> None:
        self._open = open_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._open.add(self)


class Worker:
    def __init__(self, listener: socket.socket, busy: int = 0) -> None:
        self.open: set[Connection] = set()
        self.acceptor = Acceptor(listener, lambda: Connection(self.open), lambda: busy + len(self.open))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        yield listener


@pytest.fixture
async def pair(listener: socket.socket) -> AsyncIterator[list[Worker]]:
    """Two workers, one of which has a thousand connections already."""
    with listener.dup() as one, listener.dup() as other:
        workers = [Worker(one), Worker(other, busy=1000)]
        yield workers
        for worker in workers:
            worker.acceptor.close()
            await worker.acceptor.wait_closed()
            for connection in worker.open:
                connection.transport.close()


async def _until_open(workers: list[Worker], count: int) -> None:
    while sum(len(worker.open) for worker in workers) < count:
        await asyncio.sleep(0.001)


async def test_the_worker_with_the_fewest_connections_accepts_the_most(
    listener: socket.socket, pair: list[Worker]
) -> None:
    with ExitStack() as clients:
        for number in range(1, 13):
            clients.enter_context(socket.create_connection(listener.getsockname()))
            await _until_open(pair, number)
        free, busy = (len(worker.open) for worker in pair)
        assert free > busy


async def test_a_burst_is_shared(listener: socket.socket) -> None:
    with ExitStack() as clients:
        for _ in range(60):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        workers = [Worker(clients.enter_context(listener.dup())) for _ in range(3)]
        await _until_open(workers, 60)
        assert min(len(worker.open) for worker in workers) >= 10
        for worker in workers:
            worker.acceptor.close()
            for connection in worker.open:
                connection.transport.close()


async def test_a_closed_worker_accepts_no_more_and_leaves_the_listener_to_the_others(
    listener: socket.socket, pair: list[Worker]
) -> None:
    free, busy = pair
    free.acceptor.close()
    with socket.create_connection(listener.getsockname()):
        await _until_open(pair, 1)
    assert (len(free.open), len(busy.open)) == (0, 1)
