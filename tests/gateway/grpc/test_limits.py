"""Limits over gRPC: the same as over REST, and counted together."""

import asyncio

import grpc

from loragate.v1.inference_pb2 import GenerateRequest
from tests.gateway.grpc_client import Client, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

REQUEST = GenerateRequest(model=MODEL_ID, prompt="one two three", max_tokens=8)


async def _limit(gateway: Gateway, **limits: int | None) -> None:
    async with gateway.admin() as admin:
        patched = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
    assert patched.status_code == 200, patched.text


async def test_every_response_reports_the_remaining_limits(gateway: Gateway, client: Client) -> None:
    await _limit(gateway, requests_per_minute=600, tokens_per_minute=6000)
    for method in (client.inference.Generate, client.inference.GenerateStream):
        headers = dict(await method(REQUEST, metadata=client.metadata).initial_metadata())
        assert headers["x-ratelimit-limit-requests"] == "600"
        assert 590 <= int(headers["x-ratelimit-remaining-requests"]) < 600
        assert 0 < int(headers["x-ratelimit-remaining-tokens"]) < 6000


async def test_rest_and_grpc_share_one_limit(gateway: Gateway, client: Client) -> None:
    await _limit(gateway, requests_per_minute=2)
    async with gateway.http() as http:
        await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "x"})
    await client.inference.Generate(REQUEST, metadata=client.metadata)
    call = client.inference.Generate(REQUEST, metadata=client.metadata)
    error = await rejection(call)
    assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_exceeded")
    assert error.retry_seconds is not None
    assert 0 < error.retry_seconds <= 60
    trailers = dict(await call.trailing_metadata())
    assert (trailers["x-ratelimit-limit-requests"], trailers["x-ratelimit-remaining-requests"]) == ("2", "0")
    assert trailers["x-should-retry"] == "true"


async def test_an_impossible_request_is_not_retryable(gateway: Gateway, client: Client) -> None:
    await _limit(gateway, tokens_per_minute=5)
    error = await rejection(client.inference.Generate(REQUEST, metadata=client.metadata))
    assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_exceeded")
    assert error.retry_seconds is None


async def test_a_cancelled_call_releases_its_place(gateway: Gateway, client: Client) -> None:
    await _limit(gateway, max_concurrency=1)
    gateway.engine.pause_after = 1
    call = client.inference.GenerateStream(REQUEST, metadata=client.metadata)
    await gateway.engine.paused.wait()
    assert (await rejection(client.inference.Generate(REQUEST, metadata=client.metadata))).code == "rate_limit_exceeded"
    call.cancel()
    await asyncio.gather(gateway.engine.aborted.get(), gateway.lifecycle.idle(5))
    gateway.engine.pause_after = None
    assert (await client.inference.Generate(REQUEST, metadata=client.metadata)).text
