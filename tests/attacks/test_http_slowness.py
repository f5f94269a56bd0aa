"""Slow clients: each is eventually disconnected, and does not delay others meanwhile."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loragate.v1 import engine_pb2 as pb
from tests.attacks.raw_http import Connection, connected, head, post
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def drip(connection: Connection, *pieces: bytes) -> None:
    """Send a little at a time, until the server closes the connection."""
    gone = asyncio.create_task(connection.rest())
    for piece in pieces:
        connection.writer.write(piece)
        await asyncio.wait((gone,), timeout=0.05)
        if gone.done():
            return
    await gone


SLOW = {
    "says nothing": [],
    "says that it will say something": [b"\r\n"] * 1000,
    "drips a request line": [b"G", b"E", b"T", b" ", *[b"/"] * 1000],
    "drips headers": [b"GET /healthz HTTP/1.1\r\n", *[b"x-a: b\r\n"] * 1000],
    "drips a header": [b"GET /healthz HTTP/1.1\r\nx-a: ", *[b"b"] * 1000],
}


@pytest.mark.parametrize("how", SLOW)
async def test_a_request_that_never_starts(attacked: Gateway, how: str) -> None:
    """Slowloris, on a new connection and after a request."""
    async with connected(attacked) as fresh, connected(attacked) as used:
        await used.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await used.answer()).status == 200
        await asyncio.gather(drip(fresh, *SLOW[how]), drip(used, *SLOW[how]))
    assert await _served(attacked)


async def test_a_body_that_trickles(attacked: Gateway) -> None:
    """No pause is too long, but the rate is too low."""
    async with connected(attacked) as connection:
        await connection.send(head(attacked) + b"Content-Length: 100000\r\n\r\n{")
        dripping = asyncio.create_task(_drip_forever(connection))
        answer = await connection.answer()
        dripping.cancel()
    assert (answer.status, answer.code) == (408, "request_timeout")


async def _drip_forever(connection: Connection) -> None:
    while True:
        await connection.send(b" ")
        await asyncio.sleep(0.1)


async def test_a_body_that_is_not_read(attacked: Gateway) -> None:
    """Its request was answered without reading it; the server does not wait forever for the rest."""
    async with connected(attacked) as connection:
        await connection.send(head(attacked, key="unknown") + b"Content-Length: 1000000000000\r\n\r\n")
        assert (await connection.answer()).status == 401
        await drip(connection, *[b"x" * 1000] * 1000)


@asynccontextmanager
async def unread(gateway: Gateway, request: bytes) -> AsyncIterator[None]:
    """A client that sends requests and never reads, with a small receive buffer."""
    host, port = gateway.base_url.removeprefix("http://").split(":")
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(narrow, (host, int(port)))
    try:
        await loop.sock_sendall(narrow, request)
        yield
    finally:
        narrow.close()


async def _hung_up(gateway: Gateway) -> None:
    """Wait until the server has no connection left, nor anything to send over one."""
    while gateway.server.server_state.connections:
        await asyncio.sleep(0.02)


STREAM = {"model": MODEL_ID, "prompt": ["x"] * 4, "max_tokens": 200, "stream": True, "logprobs": 5}


async def test_a_stream_that_is_not_read(attacked: Gateway) -> None:
    attacked.engine.pause_after = 190
    attacked.engine.script = lambda submit: [5] * 200
    async with unread(attacked, post(attacked, STREAM)):
        await attacked.engine.aborted.get()
        assert await attacked.lifecycle.idle(30)
        assert await _served(attacked)
        await _hung_up(attacked)


async def test_unread_output_of_a_slow_reader_is_kept_small(attacked: Gateway) -> None:
    """It is one delta that grows; separate deltas would each keep the whole frame that they came in, with all requests'
    tokens.
    """
    attacked.engine.pause_after = 239
    attacked.engine.script = lambda submit: [5] * 240
    async with unread(attacked, post(attacked, STREAM | {"prompt": "x", "n": 4, "max_tokens": 240, "logprobs": 20})):
        await attacked.engine.paused.wait()
        waiting = _unread_of(attacked)
        while sum(len(delta.token_ids) for delta in waiting) < 200:
            assert attacked.engine.aborted.empty(), "it was left before"
            await asyncio.sleep(0.01)
            waiting = _unread_of(attacked)
        assert len(waiting) <= 4
        await attacked.engine.aborted.get()


def _unread_of(gateway: Gateway) -> list[pb.Delta]:
    """Return the output that came from the engine and was not taken yet."""
    session = gateway.services.link.fleet.members[0].client._session  # type: ignore[attr-defined]
    return [delta for request in session._requests.values() for delta in request._unread.values()]


async def test_a_response_that_is_not_read(attacked: Gateway) -> None:
    """The whole response was written long ago, and the request is over; its connection ends as well."""
    attacked.engine.script = lambda submit: [5] * 200
    async with unread(attacked, post(attacked, STREAM | {"stream": False})):
        while len(attacked.engine.submits) < 4:
            await asyncio.sleep(0.01)
        assert await attacked.lifecycle.idle(30)
        assert await _served(attacked)
        await _hung_up(attacked)


async def _served(gateway: Gateway) -> bool:
    async with gateway.http() as http:
        answer = await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "x", "max_tokens": 1})
    return answer.status_code == 200
