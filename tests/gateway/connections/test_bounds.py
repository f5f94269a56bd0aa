"""Floods and slowness before a request is complete."""

import asyncio
import json

import pytest

from loragate.gateway.connections.guarded_protocol import MAX_HEAD_BYTES
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID


async def _raw(gateway: Gateway, *pieces: bytes) -> bytes:
    """Return the server's response to these bytes, until it closes the connection."""
    host, port = gateway.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


def _request(gateway: Gateway, *, path: str = "/v1/models", host: str = "x", more: str = "") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
    return head.encode()


async def test_body_over_the_limit(small_gateway: Gateway) -> None:
    body = json.dumps({"model": MODEL_ID, "prompt": "x" * 5000}).encode()

    async def in_chunks():
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    async with small_gateway.http() as http:
        announced = await http.post("/v1/completions", content=body)
        chunked = await http.post("/v1/completions", content=in_chunks())
        upload = await http.post("/v1/adapters", files={"adapter_model.safetensors": b"x" * 100_000})
    for response in (announced, chunked, upload):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


async def test_body_that_stalls(small_gateway: Gateway) -> None:
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {small_gateway.key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n"
    )
    answer = await _raw(small_gateway, head.encode(), b'{"model"')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in answer


async def test_nothing_is_read_before_authentication(gateway: Gateway) -> None:
    """Without a key the response comes although the body never does."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n"
    assert (await _raw(gateway, head)).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("complete", [True, False])
async def test_endless_headers(gateway: Gateway, complete: bool) -> None:
    flood = b"x-flood: " + b"a" * (MAX_HEAD_BYTES + 1_000_000)
    answer = await _raw(gateway, b"GET /healthz HTTP/1.1\r\nHost: x\r\n", flood + b"\r\n\r\n" * complete)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"headers_too_large"' in answer


async def test_large_bodies_do_not_count_as_headers(gateway: Gateway) -> None:
    async with gateway.http() as http:
        for _ in range(2):  # on one connection
            body = {"model": MODEL_ID, "prompt": "x", "metadata": {"note": "u" * 200_000}}
            response = await http.post("/v1/completions", json=body)
            assert response.status_code == 200


@pytest.mark.parametrize("host", ["x/healthz?", "x/healthz", "x?/healthz#", "healthz", "[", "a@b"])
async def test_the_host_header_changes_nothing(gateway: Gateway, host: str) -> None:
    answer = await _raw(gateway, _request(gateway, host=host))
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["//v1/models", "/v1/models/", "/V1/models", "/healthz/../v1/models", "/v1/models;x"])
async def test_variants_of_a_path_are_not_found(gateway: Gateway, path: str) -> None:
    answer = await _raw(gateway, _request(gateway, path=path))
    assert answer.split()[1] in {b"401", b"404"}


async def test_request_ids(gateway: Gateway) -> None:
    async with gateway.http() as http:
        kept = await http.get("/healthz", headers={"x-request-id": "my-id.1"})
        replaced = await http.get("/healthz", headers={"x-request-id": "a b\t<script>"})
        on_errors = await http.get("/nowhere")
    assert kept.headers["x-request-id"] == "my-id.1"
    assert replaced.headers["x-request-id"].startswith("req_")
    assert on_errors.headers["x-request-id"].startswith("req_")
