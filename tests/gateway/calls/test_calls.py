"""The usage record of every request, however the request ended."""

import asyncio
from typing import Any

import pytest

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 12}
CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "A question about stars"}]}


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[UsageRecord]":
    """The records passed to the ledger."""
    kept: asyncio.Queue[UsageRecord] = asyncio.Queue()
    monkeypatch.setattr(
        "loragate.gateway.metering.ledger.Ledger.record", lambda self, record, slot: kept.put_nowait(record)
    )
    return kept


async def _usage(gateway: Gateway, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with gateway.http() as http:
        response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    usage: dict[str, Any] = response.json()["usage"]
    return usage


@pytest.mark.parametrize(
    ("path", "body", "endpoint"),
    [
        ("/v1/chat/completions", CHAT, "chat"),
        ("/v1/completions", TEXT | {"n": 2}, "completions"),
        ("/v1/completions", TEXT | {"prompt": ["one", "two three"]}, "completions"),
        ("/v1/embeddings", {"model": MODEL_ID, "input": ["one two", "three"]}, "embeddings"),
    ],
)
async def test_the_record_contains_what_was_delivered_to_the_client(
    gateway: Gateway, records: "asyncio.Queue[UsageRecord]", path: str, body: dict[str, Any], endpoint: str
) -> None:
    gateway.engine.cached_tokens = 1
    usage = await _usage(gateway, path, body)
    record = records.get_nowait()
    assert (record.endpoint, record.base_model, record.outcome) == (endpoint, MODEL_ID, Outcome.COMPLETED)
    assert record.prompt_tokens == usage["prompt_tokens"] > 0
    assert record.completion_tokens == usage.get("completion_tokens", 0)
    assert record.cached_tokens == usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    assert record.tenant_id == gateway.tenant_id
    assert gateway.key.startswith(f"lg-{record.key_id}-")
    assert record.adapter is record.adapter_digest is None
    assert record.ttft_ms is not None
    assert 0 <= record.ttft_ms <= record.duration_ms
    assert records.empty()


async def test_adapters_are_named_as_they_were_resolved(
    gateway: Gateway, records: "asyncio.Queue[UsageRecord]", upload: Any
) -> None:
    version = await upload("poet")
    await _usage(gateway, "/v1/completions", TEXT | {"model": "poet@default"})
    record = records.get_nowait()
    assert (record.adapter, record.adapter_version, record.adapter_digest) == ("poet", 1, version["digest"])


async def test_a_client_that_leaves_its_stream_pays_for_delivered_tokens(
    gateway: Gateway, records: "asyncio.Queue[UsageRecord]"
) -> None:
    gateway.engine.pause_after = 3
    async with gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as response:
            lines = response.aiter_lines()
            await gateway.engine.paused.wait()
            received = 0
            while received < 3:
                received += "data:" in await anext(lines)
        record = await records.get()
    assert (record.outcome, record.completion_tokens) == (Outcome.DISCONNECTED, 3)
    assert record.prompt_tokens > 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_token_pays_nothing(
    gateway: Gateway, records: "asyncio.Queue[UsageRecord]", stream: bool
) -> None:
    gateway.engine.pause_after = 0
    async with gateway.http() as http:
        request = asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": stream}))
        await gateway.engine.paused.wait()
        request.cancel()
        record = await records.get()
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.DISCONNECTED, 0, 0)
    assert record.ttft_ms is None


@pytest.mark.parametrize("stream", [True, False])
async def test_delivered_tokens_are_billed_when_the_engine_dies(
    gateway: Gateway, records: "asyncio.Queue[UsageRecord]", stream: bool
) -> None:
    gateway.engine.pause_after = 3
    async with gateway.http() as http:
        request = asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": stream}))
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        response = await request
    reported = response.text.count('"finish_reason":null')  # one token an event; what was on its way is lost
    record = records.get_nowait()
    assert (record.outcome, record.completion_tokens) == (Outcome.FAILED, reported)
    assert bool(record.prompt_tokens) == bool(reported)
    assert stream or not reported


async def test_the_drain_deadline_is_not_a_disconnect(gateway: Gateway, records: "asyncio.Queue[UsageRecord]") -> None:
    gateway.engine.pause_after = 1
    async with gateway.http() as http:
        request = asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": True}))
        await gateway.engine.paused.wait()
        gateway.lifecycle.expire()
        await request
    async with asyncio.timeout(30):  # the engine ends the request first
        assert (await records.get()).outcome is Outcome.CANCELLED


async def test_ids_are_generated_by_the_gateway(gateway: Gateway, records: "asyncio.Queue[UsageRecord]") -> None:
    async with gateway.http() as http:
        for _ in range(2):
            await http.post("/v1/completions", json=TEXT, headers={"x-request-id": "mine"})
    first, second = records.get_nowait(), records.get_nowait()
    assert first.request_id == second.request_id == "mine"
    assert first.id != second.id
