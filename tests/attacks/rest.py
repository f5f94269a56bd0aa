"""The checks after every attack: nothing is left of it, and the next caller is served."""

import asyncio

from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID


async def at_rest(gateway: Gateway) -> None:
    """Wait until nothing is left; a test that hangs here has found a leak."""
    assert await gateway.lifecycle.idle(30), f"{gateway.lifecycle.running} requests still run"
    await no_leases(gateway)
    async with gateway.http() as http:
        answer = await http.post("/v1/completions", json={"model": MODEL_ID, "prompt": "all is well", "max_tokens": 2})
    assert answer.status_code == 200, answer.text
    while gateway.server.server_state.connections:
        await asyncio.sleep(0.01)


async def no_leases(gateway: Gateway) -> None:
    """Wait until all leases are settled, which happens shortly after a request's end."""
    while leases_of(gateway):
        await asyncio.sleep(0.01)


def leases_of(gateway: Gateway) -> int:
    """Return the requests that count against a concurrency limit."""
    return sum(len(pipeline.observed.held) for pipeline in gateway.services.admission.limiter._pipelines.values())
