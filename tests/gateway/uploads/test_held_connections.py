"""No database connection is held while bytes are received or sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway

Upload = Callable[..., Awaitable[dict[str, Any]]]


def connections(gateway: Gateway) -> int:
    """Return the connections that are currently held."""
    assert gateway.services is not None
    pool: Any = gateway.services.store._database._engine.sync_engine.pool
    held: int = pool.checkedout()
    return held


async def none_is_held(gateway: Gateway) -> None:
    """Background work may hold one for a moment; a stream would hold it until it ends."""
    async with asyncio.timeout(10):
        while connections(gateway):
            await asyncio.sleep(0.01)


async def test_during_a_streamed_response(gateway: Gateway, upload: Upload) -> None:
    await upload("poet")
    gateway.engine.pause_after = 2
    body = {"model": "poet", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    async with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        try:
            await gateway.engine.paused.wait()
            await none_is_held(gateway)
        finally:
            gateway.engine.resume.set()
        await answer.aread()


async def test_during_an_upload(gateway: Gateway, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    half_sent, resume = asyncio.Event(), asyncio.Event()

    async def form() -> AsyncIterator[bytes]:
        yield part("name") + b"poet"
        yield b"\r\n" + part("adapter_config.json") + (folder / "adapter_config.json").read_bytes()
        tensors = (folder / "adapter_model.safetensors").read_bytes()
        yield b"\r\n" + part("adapter_model.safetensors") + tensors[:100]
        half_sent.set()
        await resume.wait()
        yield tensors[100:] + b"\r\n--x--\r\n"

    def part(name: str) -> bytes:
        return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()

    head = {"content-type": "multipart/form-data; boundary=x"}
    async with gateway.http() as http:
        sending = asyncio.create_task(http.post("/v1/adapters", content=form(), headers=head))
        try:
            await half_sent.wait()
            await none_is_held(gateway)
        finally:
            resume.set()
        assert (await sending).status_code == 201


async def test_during_a_download(gateway: Gateway, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    await upload("poet")
    assert gateway.services is not None
    begun, resume = asyncio.Event(), asyncio.Event()
    store, open_adapter = gateway.services.store, gateway.services.store.open_adapter

    async def slow(tenant_id: str, digest: str) -> Any:
        stored = await open_adapter(tenant_id, digest)

        async def tensors() -> AsyncIterator[bytes]:
            begun.set()
            await resume.wait()
            async for chunk in stored.tensors:
                yield chunk

        return replace(stored, tensors=tensors())

    monkeypatch.setattr(store, "open_adapter", slow)
    url = "/v1/adapters/poet/versions/1/files/adapter_model.safetensors"
    async with gateway.http() as http:
        reading = asyncio.create_task(http.get(url))
        try:
            async with asyncio.timeout(20):
                await begun.wait()
            await none_is_held(gateway)
        finally:
            resume.set()
        assert (await reading).content
