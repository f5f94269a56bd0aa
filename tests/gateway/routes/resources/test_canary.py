"""A canary: which requests get it, and its metrics."""

import asyncio
from typing import Any

import pytest

from loragate.v1 import adapters_pb2 as adapters_pb
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import inference_pb2
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway

USERS = [f"user-{number}" for number in range(12)]


@pytest.fixture
async def split(gateway: Gateway, upload: Any) -> Gateway:
    """An adapter whose default alias has two versions, half and half."""
    for seed in (1, 2):
        await upload("poet", seed=seed)
    async with gateway.http() as http:
        targets = {"targets": [{"version": 1}, {"version": 2}]}
        assert (await http.put("/v1/adapters/poet/aliases/default", json=targets)).status_code == 200
    return gateway


async def _version(http: Any, path: str, **body: Any) -> int:
    answer = await http.post(path, json={"model": "poet", **body})
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-loragate-adapter"].partition(":")[2].partition("@")[0])


async def test_a_user_keeps_one_version_across_requests(split: Gateway, client: Client) -> None:
    messages = [{"role": "user", "content": "x"}]
    chosen = {}
    async with split.http() as http:
        for user in USERS:
            versions = {
                await _version(http, "/v1/completions", prompt="x", max_tokens=1, user=user),
                await _version(http, "/v1/completions", prompt="y", max_tokens=1, safety_identifier=user),
                await _version(http, "/v1/chat/completions", messages=messages, max_tokens=1, user=user),
                await _version(http, "/v1/embeddings", input="x", user=user),
                await _version(http, "/v1/responses", input="x", max_output_tokens=1, user=user),
                await _over_grpc(client, user),
            }
            assert len(versions) == 1, user
            chosen[user] = versions.pop()
    assert set(chosen.values()) == {1, 2}


async def _over_grpc(client: Client, user: str) -> int:
    request = inference_pb2.ChatRequest(
        model="poet", messages=[{"role": "user", "content": "x"}], max_tokens=1, user=user
    )
    call = client.inference.Chat(request, metadata=client.metadata)
    await call
    headers = dict(await call.initial_metadata())
    return int(headers["x-loragate-adapter"].partition(":")[2].partition("@")[0])


async def test_without_a_user_the_weights_decide(split: Gateway) -> None:
    async with split.http() as http:
        drawn = [await _version(http, "/v1/completions", prompt="x", max_tokens=1) for _ in range(40)]
    assert set(drawn) == {1, 2}  # missed once in 10¹²


@pytest.mark.parametrize("user", ["x" * 513, 7, ["a"]])
async def test_a_user_must_be_a_string(split: Gateway, user: Any) -> None:
    async with split.http() as http:
        rejected = await http.post("/v1/completions", json={"model": "poet", "prompt": "x", "user": user})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "user")


async def _metrics(http: Any, wanted: int, query: str = "") -> Any:
    """Return the metrics once this many requests are in the ledger."""
    async with asyncio.timeout(20):
        while True:
            metrics = (await http.get(f"/v1/adapters/poet/aliases/default/metrics{query}")).json()
            if sum(target["requests"] for target in metrics["targets"]) >= wanted:
                return metrics
            await asyncio.sleep(0.1)


async def test_metrics_are_reported_for_each_version(split: Gateway, client: Client) -> None:
    async with split.http() as http:
        versions = [await _version(http, "/v1/completions", prompt="xyz", max_tokens=2, user=user) for user in USERS]
        split.engine.fails = lambda submit: True
        split.engine.failure = pb.EngineError(code=pb.ERROR_CODE_INTERNAL, message="scripted")
        assert (await http.post("/v1/completions", json={"model": "poet", "prompt": "x", "user": USERS[0]})).is_error
        await http.post("/v1/completions", json={"model": "poet:1", "prompt": "x"})  # by no alias
        await http.post("/v1/adapters/poet/promote", json={"version": 2})
        metrics = await _metrics(http, len(USERS) + 1, "?hours=1")
    assert [target["version"] for target in metrics["targets"]] == [1, 2]
    for target in metrics["targets"]:
        number, mine = target["version"], versions.count(target["version"])
        failed = int(versions[0] == number)
        assert (target["requests"], target["errors"]) == (mine + failed, failed)
        assert (target["prompt_tokens"], target["completion_tokens"]) == (3 * mine, 2 * mine)
        first = target["ttft_ms"]
        assert 0 <= first["p50"] <= first["p90"] <= first["p99"]
        assert target["weight"] == (None if number == 1 else 1)
    request = adapters_pb.AliasMetricsRequest(name="poet", hours=1)
    reported = await client.adapters.AliasMetrics(request, metadata=client.metadata)
    assert [target.requests for target in reported.targets] == [target["requests"] for target in metrics["targets"]]


async def test_metrics_of_missing_aliases_are_not_found(split: Gateway) -> None:
    async with split.http() as http, split.http(split.other_key) as other:
        url = "/v1/adapters/poet/aliases/{}/metrics"
        assert (await http.get(url.format("unknown"))).status_code == 404
        assert (await other.get(url.format("default"))).status_code == 404
        assert (await http.get(url.format("default") + "?hours=169")).json()["error"]["param"] == "hours"
        (first, second) = (await http.get(url.format("default"))).json()["targets"]
    assert (first["requests"], first["weight"], first["ttft_ms"]) == (0, 1, None)
    assert second["version"] == 2
