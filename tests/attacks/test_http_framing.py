"""The boundary between two requests: anything that two servers could parse differently is rejected."""

import asyncio

import pytest

from loragate.gateway.connections.guarded_protocol import MAX_HEAD_BYTES, MAX_HEADERS
from tests.attacks.raw_http import connected, exchange, head, post
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODY = b'{"model":"%s","prompt":"one two","max_tokens":2}' % MODEL_ID.encode()
HIDDEN = b"GET /admin/v1/tenants HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
END = b"0\r\n\r\n"

AMBIGUOUS = {
    "both lengths": LENGTH + CHUNKED + b"\r\n" + CHUNK + END,
    "both lengths, the other way round": CHUNKED + LENGTH + b"\r\n" + CHUNK + END,
    "two lengths": LENGTH + b"Content-Length: 3\r\n\r\n" + BODY,
    "the same length twice": LENGTH * 2 + b"\r\n" + BODY,
    "a list of lengths": b"Content-Length: %d, %d\r\n\r\n%s" % (len(BODY), len(BODY), BODY),
    "a signed length": b"Content-Length: +%d\r\n\r\n%s" % (len(BODY), BODY),
    "a negative length": b"Content-Length: -1\r\n\r\n" + BODY,
    "a length in hexadecimal": b"Content-Length: 0x%x\r\n\r\n%s" % (len(BODY), BODY),
    "a length that no number holds": b"Content-Length: 99999999999999999999\r\n\r\n" + BODY,
    "an encoding that is not chunked": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK + END,
    "chunked and then not": b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNK + END,
    "chunked and another": CHUNKED + b"Transfer-Encoding: x\r\n\r\n" + CHUNK + END,
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n" + CHUNK + END,
    "a control character": b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNK + END,
    "a folded header": b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNK + END,
    "a bare line feed": b"X-A: b\n" + LENGTH + b"\r\n" + BODY,
    "a bare carriage return": b"X-A: b\r" + LENGTH + b"\r\n" + BODY,
    "NUL in a header": b"X-A: b\0c\r\n" + LENGTH + b"\r\n" + BODY,
    "a header without a colon": b"X-A\r\n" + LENGTH + b"\r\n" + BODY,
    "a chunk behind a line feed": CHUNKED + b"\r\n%x\n%s\r\n" % (len(BODY), BODY) + END,
    "a chunk of no size": CHUNKED + b"\r\nzz\r\n" + BODY + b"\r\n" + END,
    "a chunk of a negative size": CHUNKED + b"\r\n-1\r\n" + BODY + b"\r\n" + END,
    "a chunk of a size that no number holds": CHUNKED + b"\r\nfffffffffffffffff\r\n" + BODY + b"\r\n" + END,
    "a chunk that goes on behind its end": CHUNKED + b"\r\n%x\r\n%sxx" % (len(BODY), BODY) + END,
    "a second host": b"Host: y\r\n" + LENGTH + b"\r\n" + BODY,
}


async def test_smuggling(attacked: Gateway) -> None:
    """The request is rejected, and nothing after it is parsed as a request."""

    async def rejected(shape: str) -> None:
        async with connected(attacked) as connection:
            await connection.send(head(attacked) + AMBIGUOUS[shape] + HIDDEN)
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (400, "close"), shape
            assert answer.code in ("invalid_http", "invalid_host"), shape
            assert await connection.rest() == b"", shape

    await asyncio.gather(*map(rejected, AMBIGUOUS))
    assert not attacked.engine.submits


async def test_no_host(attacked: Gateway) -> None:
    assert (await exchange(attacked, b"GET /healthz HTTP/1.1\r\n\r\n")).code == "invalid_host"
    assert (await exchange(attacked, b"GET /healthz HTTP/1.0\r\n\r\n")).status == 200


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://x HTTP/1.1",
        b"GET http://x?/healthz HTTP/1.1",
        b"GET x:80 HTTP/1.1",
        b"CONNECT x:443 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /\xff HTTP/1.1",
        b"get /healthz HTTP/1.1",
        b"FOO /healthz HTTP/1.1",
        b"GET /healthz HTTP/1.2",
    ],
)
async def test_unsupported_request_lines(attacked: Gateway, line: bytes) -> None:
    assert (await exchange(attacked, line + b"\r\nHost: x\r\n\r\n")).code == "invalid_http"


@pytest.mark.parametrize("target", [b"http://x/v1/models", b"http://x/healthz/../v1/models?/healthz", b"//x/v1/models"])
async def test_the_target_s_host_grants_nothing(attacked: Gateway, target: bytes) -> None:
    answer = await exchange(attacked, b"GET %s HTTP/1.1\r\nHost: x/healthz?\r\n\r\n" % target)
    assert answer.status in (401, 404)


async def test_pipelined_bytes_are_not_a_second_request(attacked: Gateway) -> None:
    """They are not read: the first request gets its response, and the connection is closed."""
    attacked.engine.pause_after = 1
    for behind in (HIDDEN, post(attacked, BODY), b"\0garbage", HIDDEN * 1000):
        attacked.engine.reset()
        attacked.engine.pause_after = 1
        async with connected(attacked) as connection:
            await connection.send(post(attacked, BODY) + behind)
            await attacked.engine.paused.wait()
            await connection.send(behind)
            attacked.engine.resume.set()
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await connection.rest() == b""
        assert len(attacked.engine.submits) == 1


async def test_sequential_requests_share_a_connection(attacked: Gateway) -> None:
    async with connected(attacked) as connection:
        for _ in range(3):
            await connection.send(post(attacked, BODY))
            assert (await connection.answer()).status == 200
            await connection.send(head(attacked) + CHUNKED + b"\r\n" + CHUNK + b"0\r\nX-A: b\r\n\r\n")
            assert (await connection.answer()).status == 200


@pytest.mark.parametrize("length", [LENGTH + b"\r\n" + BODY, CHUNKED + b"\r\n" + CHUNK + END])
async def test_an_upgrade_offer_is_declined(attacked: Gateway, length: bytes) -> None:
    """httptools treats what follows such a request as the other protocol: the body would be the next request. Java's
    HTTP client makes the offer with each first request.
    """
    offer = b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    async with connected(attacked) as connection:
        for pieces in ([head(attacked) + offer + length], [head(attacked) + offer, length[:20], length[20:]]):
            for piece in pieces:
                await connection.send(piece)
                await asyncio.sleep(0.05)
            assert (await connection.answer()).status == 200
    assert len(attacked.engine.submits) == 2


async def test_a_key_in_trailers_is_ignored(attacked: Gateway) -> None:
    """A proxy that checks headers never saw it."""
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + CHUNKED + b"\r\n"
    trailer = f"0\r\nAuthorization: Bearer {attacked.key}\r\n\r\n".encode()
    assert (await exchange(attacked, request + CHUNK + trailer)).status == 401


FLOODS = {
    "behind the body": b"0\r\n" + b"x-a: b\r\n" * 20_000,
    "in one line behind the body": b"0\r\nx-a: " + b"b" * 2 * MAX_HEAD_BYTES,
    "in a chunk's extension": b"1;a=" + b"b" * 2 * MAX_HEAD_BYTES,
}


async def test_floods_outside_the_body(attacked: Gateway) -> None:
    """They are not stored, with or without a key."""

    async def rejected(where: str, *, known: bool) -> None:
        async with connected(attacked) as connection:
            await connection.send(head(attacked, key=None if known else "unknown") + CHUNKED + b"\r\n")
            if not known:
                assert (await connection.answer()).status == 401
            await connection.send(FLOODS[where])
            await connection.send(b"b" * MAX_HEAD_BYTES)
            assert (await connection.answer()).code == "headers_too_large", where
            assert await connection.rest() == b"", where

    await asyncio.gather(*(rejected(where, known=known) for where in FLOODS for known in (True, False)))


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /healthz?" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * MAX_HEADERS + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 100_000,
        b"GET " + b"x" * 2 * MAX_HEAD_BYTES,
    ],
)
async def test_floods_of_headers(attacked: Gateway, flood: bytes) -> None:
    """Also if they come in one piece, and if they never end."""
    answer = await exchange(attacked, flood)
    assert (answer.status, answer.code) == (431, "headers_too_large")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "identity, gzip", "x-gzip"])
async def test_a_decompression_bomb_is_not_unpacked(attacked: Gateway, encoding: str) -> None:
    bomb = head(attacked) + f"Content-Encoding: {encoding}\r\n".encode() + LENGTH + b"\r\n" + BODY
    answer = await exchange(attacked, bomb)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
