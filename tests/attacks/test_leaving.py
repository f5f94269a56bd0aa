"""Clients that disconnect, in any way and after any input: the engine is notified, and their place is freed."""

import asyncio
import socket
import struct
from typing import Any

import pytest

from loragate.gateway.generation.tokenize import PromptTokenizer
from tests.attacks.raw_http import connected, post
from tests.attacks.rest import leases_of, no_leases
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINGER_NO_SECOND = struct.pack("ii", 1, 0)  # a close with it is a reset
BEHIND = {
    "nothing": b"",
    "another request": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "many requests": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 5000,
    "a part of a request": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{",
    "no request": b"\0" * 100_000,
}


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("behind", BEHIND)
async def test_requests_of_clients_that_leave_are_aborted(
    attacked: Gateway, behind: str, stream: bool, reset: bool
) -> None:
    """Input after the request must not hide the disconnect: uvicorn reads no further than the next request."""
    attacked.engine.pause_after = 2
    body = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 9, "stream": stream}
    async with connected(attacked) as connection:
        await connection.send(post(attacked, body))
        await attacked.engine.paused.wait()
        connection.writer.write(BEHIND[behind])
        await asyncio.sleep(0)
        assert leases_of(attacked) == 1
        if reset:
            sock = connection.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NO_SECOND)
    assert await attacked.engine.aborted.get() == attacked.engine.submits[0].request_id
    assert await attacked.lifecycle.idle(30)
    await no_leases(attacked)


async def test_a_prompt_whose_client_left_is_never_submitted(
    attacked: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client left while the prompt was tokenized."""
    reached, resume, real = asyncio.Event(), asyncio.Event(), PromptTokenizer.prompts

    async def slowly(*arguments: Any) -> object:
        reached.set()
        await resume.wait()
        return await real(*arguments)

    monkeypatch.setattr(PromptTokenizer, "prompts", slowly)
    async with connected(attacked) as connection:
        await connection.send(post(attacked, {"model": MODEL_ID, "prompt": "x"}))
        await reached.wait()
    while attacked.server.server_state.connections:
        await asyncio.sleep(0.01)
    resume.set()
    assert await attacked.lifecycle.idle(30)
    await no_leases(attacked)
    assert not attacked.engine.submits or await attacked.engine.aborted.get()
