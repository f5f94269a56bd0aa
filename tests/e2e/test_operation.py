"""A real server under overload: which requests are rejected, what its traces contain, and how it stops."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from otlp_collector import Collector, otlp_collector
from running_server import RunningServer, ok

REQUESTS = 150  # of each tenant, at once
WEIGHTS = {"free": 1.0, "paying": 8.0}

pytestmark = pytest.mark.long


async def test_overload_traces_and_a_clean_end(tiny: Any, tmp_path: Path) -> None:
    with otlp_collector() as collector:
        server = await asyncio.to_thread(
            RunningServer,
            tmp_path / "data",
            "--model",
            str(tiny.base),
            LORAGATE_ENGINE__MAX_BATCH_SIZE="4",
            LORAGATE_MAX_QUEUE_SECONDS="3",
            LORAGATE_TRACING__ENDPOINT=collector.endpoint,
            LORAGATE_TRACING__SAMPLE_RATIO="1",
        )
        keys = {name: await asyncio.to_thread(server.add_tenant, name) for name in WEIGHTS}
        with server.admin() as admin:
            for tenant in ok(admin.get("/admin/v1/tenants"))["data"]:
                ok(admin.patch(f"/admin/v1/tenants/{tenant['id']}", json={"weight": WEIGHTS[tenant["name"]]}))
        statuses = await _flood(server, keys)
        assert _odds(statuses["paying"]) > 2 * _odds(statuses["free"]), statuses
        assert statuses["free"][200] > 0
        assert sum(statuses["paying"].values()) == statuses["paying"][200] + statuses["paying"][503]
        async with _client(server, keys["free"]) as free:
            assert (await _complete(free)).status_code == 200, "it is over by itself"
        assert await asyncio.to_thread(server.stop) == 0
    _check_queue_spans(collector)


def _odds(statuses: Counter[int]) -> float:
    """Return how many requests are served for each that is rejected, independent of the machine's speed."""
    return statuses[200] / max(1, statuses[503])


async def _flood(server: RunningServer, keys: dict[str, str]) -> dict[str, Counter[int]]:
    """Each tenant sends a request every few milliseconds, without waiting for a response."""

    async def one(client: httpx.AsyncClient, number: int) -> int:
        await asyncio.sleep(number * 0.02)
        return (await _complete(client)).status_code

    async def all_of(key: str) -> Counter[int]:
        async with _client(server, key) as client:
            return Counter(await asyncio.gather(*(one(client, number) for number in range(REQUESTS))))

    return dict(zip(keys, await asyncio.gather(*map(all_of, keys.values())), strict=True))


def _client(server: RunningServer, key: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=REQUESTS)
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=server.base_url, headers=headers, timeout=120, limits=limits)


async def _complete(client: httpx.AsyncClient) -> httpx.Response:
    body = {"model": "tiny-llama", "prompt": [5, 9, 13], "max_tokens": 100, "ignore_eos": True}
    return await client.post("/v1/completions", json=body)


def _check_queue_spans(collector: Collector) -> None:
    """Under load the wait is visible, and it is the engine's."""
    calls = {span.id for span in collector.spans if span.name == "text_completion tiny-llama"}
    waits = [
        (span.span.end_time_unix_nano - span.span.start_time_unix_nano) / 1e9
        for span in collector.spans
        if span.name == "queue" and span.parent in calls
    ]
    assert len(waits) > 20
    assert max(waits) > 0.1
